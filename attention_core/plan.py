"""Plan: a layout made ready to run on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout, TileKind
from pattern_studio.problem import Problem

from .block_mask import BlockMask
from .kernels import fused
from .kernels.runs import KeyRuns
from .kernels.triton.lists import TileLists
from .tiles import key_lists, key_major, query_lists

EDGE = 2**31 - 1  # beyond any j - i of two lengths that fit int32


@dataclass(frozen=True, eq=False)
class Plan:
    """Tiles on a device: their problem, their block and what the kernels walk.

    Made from a layout by `plan()`, or from a tensor of kept tiles by `plan_from_mask()`.
    Immutable: threads may share one, and it can be pickled and deep-copied. `runs` serve the kernels
    in plain torch; the fused kernels' lists are made when first asked for (on CUDA at once), the same
    whoever asks. Memory is O(active tiles) of a layout, whatever the lengths, and O(tiles) of a mask.
    `batch` is the batch size that a plan is for, or None where it serves any.
    """

    problem: Problem
    block: tuple[int, int]
    device: torch.device
    source: BlockLayout | BlockMask
    batch: int | None = None

    @cached_property
    def layout(self) -> BlockLayout:
        """The tiles as a layout; those of a mask have batch * heads heads, and the host waits for the device."""
        return self.source if isinstance(self.source, BlockLayout) else self.source.layout()

    @cached_property
    def runs(self) -> KeyRuns:
        """Runs of keys of each query block, for the kernels in plain torch, heads as the layout's."""
        return _key_runs(self.layout).to(self.device)

    @cached_property
    def by_query(self) -> TileLists:
        """Key tiles of each query block, for the fused forward and dQ."""
        if isinstance(self.source, BlockMask):
            return self.source.query_lists()
        return query_lists(self.source).to(self.device)

    @cached_property
    def by_key(self) -> TileLists:
        """Query tiles of each key block, for the fused dK and dV."""
        if isinstance(self.source, BlockMask):
            return self.source.key_lists()
        return key_lists(self.source).to(self.device)

    def to(self, device: torch.device | str) -> Plan:
        """The same plan on another device."""
        source = self.source
        if isinstance(source, BlockMask):
            source = replace(source, mask=source.mask.to(device))
        moved = replace(self, device=torch.empty(0, device=device).device, source=source)
        if "runs" in vars(self):
            vars(moved)["runs"] = self.runs.to(device)
        return ready(moved)


def plan(layout: BlockLayout, device: torch.device | str | None = None) -> Plan:
    """Make a layout ready to run on `device` (torch's default device if None).

    A layout lowered for `heads=1` serves any number of query heads; otherwise the number of query
    heads must be the layout's. Raises StudioError, a ValueError, for anything but a sound BlockLayout.

    >>> import pattern_studio as ps
    >>> plan(ps.lower(ps.parse("causal"), q_len=100, block=32)).block
    (32, 32)
    """
    if not isinstance(layout, BlockLayout):
        raise StudioError(
            f"plan() takes a BlockLayout, got {type(layout).__name__}; "
            "make one with pattern_studio.lower(pattern, q_len=..., block=...)"
        )
    layout.validate()
    device = torch.get_default_device() if device is None else device
    made = Plan(layout.problem, layout.block, torch.empty(0, device=device).device, layout)
    _ = made.runs  # now: the layout's own arrays stay mutable
    return ready(made)


def ready(made: Plan) -> Plan:
    """On CUDA make the fused kernels' lists now, so that no call of a kernel waits for them."""
    if made.device.type == "cuda" and fused.serves_block(made.block):
        _ = made.by_query, fused.gathers_keys(made.block) or made.by_key
    return made


def _key_runs(layout: BlockLayout) -> KeyRuns:
    (block_q, block_k), problem, rows = layout.block, layout.problem, layout.rows
    is_full = rows.kind == TileKind.FULL
    order = np.lexsort((rows.start, ~is_full, rows.line))  # a line's FULL runs first: they need no mask
    line, kind, ref, is_full = rows.line[order], rows.kind[order], rows.ref[order], is_full[order]

    first = rows.start[order].astype(np.int64) * block_k
    keys = np.minimum(rows.length[order].astype(np.int64) * block_k, problem.kv_len - first)
    low, high = np.full(len(line), -EDGE), np.full(len(line), EDGE)
    band = kind == TileKind.BAND
    # A band is given on positions; j - (i - offset) = j - row has the same bounds moved by the offset.
    low[band], high[band] = np.clip(layout.bands[ref[band]] + problem.offset, -EDGE, EDGE).T

    lines = layout.groups * layout.q_blocks
    full_runs = np.bincount(line[is_full], minlength=lines)
    line_keys = _sum_by_line(line, keys, lines)
    line_full = _sum_by_line(line[is_full], keys[is_full], lines)
    by_keys = np.lexsort((line_full, line_keys))

    def tensor(array: NDArray, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(array, dtype=dtype, device="cpu")  # a copy: the layout's own arrays stay mutable

    return KeyRuns(
        q_len=problem.q_len,
        kv_len=problem.kv_len,
        block_q=block_q,
        block_k=block_k,
        banded=bool(band.any()),
        indptr=tensor(rows.indptr, torch.int64),
        partial=tensor(rows.indptr[:-1] + full_runs, torch.int64),
        first=tensor(first, torch.int32),
        key_ptr=tensor(np.r_[0, np.cumsum(keys)], torch.int64),
        low=tensor(low, torch.int32),
        high=tensor(high, torch.int32),
        mask=tensor(np.where(kind == TileKind.BITS, ref, -1), torch.int32),
        masks=tensor(key_major(layout), torch.uint8),
        head_group=tensor(layout.head_group, torch.int32),
        line_keys=tensor(line_keys, torch.int64),
        line_full=tensor(line_full, torch.int64),
        line_order=tensor(by_keys[line_keys[by_keys] > 0], torch.int64),
        host_head_group=tensor(layout.head_group, torch.int64),
    )


def _sum_by_line(line: NDArray, keys: NDArray, lines: int) -> NDArray[np.int64]:
    total = np.zeros(lines, np.int64)
    np.add.at(total, line, keys)
    return total
