"""How `blocked` cuts a plan into chunks: alike lines together, bounded padding, bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .runs import KeyRuns

PADDING = 4  # a chunk's longest line has at most 1 + 1/PADDING times the keys of its shortest


def chunk_elements(device: torch.device) -> int:
    """Numbers that the scores, gathered keys and running sums of one chunk may take together.

    On a CPU a chunk of 16 MiB of float32 was fastest; a GPU wants few launches more than it minds
    256 MiB (an H200 took 14 times as long with 16).
    """
    return 2**22 if device.type == "cpu" else 2**26


@dataclass(frozen=True)
class Chunk:
    """Lines of nearly equal key count, for some batch entries and all or some packs that follow them.

    A pack is a set of `heads_per_pack` neighbouring query heads of one layout and one key head, taken
    together so that their keys are gathered once. lines int64 [lines], packs int64 [packs, lines] on
    the plan's device; batch `first_batch : last_batch`. Key slots `0 : full` are FULL keys of every
    line; `full : keys` may be masked or missing. `slices` cuts them into parts that fit in memory.
    """

    heads_per_pack: int
    lines: Tensor
    packs: Tensor
    first_batch: int
    last_batch: int
    full: int
    keys: int
    width: int

    @property
    def slices(self) -> list[tuple[int, int]]:
        """Key slots `(first, stop)` of each part, none across `full`."""
        starts = [*range(0, self.full, self.width), *range(self.full, self.keys, self.width)]
        return list(zip(starts, [*starts[1:], self.keys], strict=True))


def chunks(runs: KeyRuns, batch: int, heads: int, kv_heads: int, head_dims: int) -> Iterator[Chunk]:
    """Yield chunks that cover every line with keys, once for each batch entry and query head.

    `head_dims` is head_dim + value_dim, which sets the size of a gathered key. Everything is decided
    on the host; the number of chunks of one size class is logarithmic in the spread of key counts
    until memory asks for more.
    """
    if batch == 0 or len(runs.line_order) == 0:
        return
    per_pack, pack_group = _packs(runs, heads, kv_heads)
    by_group = torch.argsort(pack_group, stable=True)
    packs_of = torch.bincount(pack_group, minlength=runs.groups)
    first_pack = packs_of.cumsum(0) - packs_of

    budget = chunk_elements(runs.indptr.device)
    rows = min(runs.block_q, runs.q_len)
    per_slot, per_unit = per_pack * rows + head_dims, per_pack * rows * head_dims
    line_packs = packs_of[runs.line_order // runs.q_blocks]
    # Lines of groups with equally many packs make one array together, whichever group they are of.
    for count in packs_of[packs_of > 0].unique().tolist():
        lines = runs.line_order[line_packs == count]
        packs = by_group[first_pack[lines // runs.q_blocks] + torch.arange(count)[:, None]]  # [packs, lines]
        for begin, end, full, keys in _alike(runs.line_keys[lines], runs.line_full[lines]):
            width = min(keys, max(1, budget // per_slot))
            units = max(1, budget // (per_unit + width * per_slot))
            step_b, step_p = min(batch, units), min(count, max(1, units // batch))
            step_l = max(1, units // (batch * count))
            for at in range(begin, end, step_l):
                span = slice(at, min(at + step_l, end))
                on_device = lines[span].to(runs.indptr.device)
                for p in range(0, count, step_p):
                    some = packs[p : p + step_p, span].to(runs.indptr.device)
                    for b in range(0, batch, step_b):
                        yield Chunk(per_pack, on_device, some, b, min(b + step_b, batch), full, keys, width)


def _packs(runs: KeyRuns, heads: int, kv_heads: int) -> tuple[int, Tensor]:
    """Query heads per pack, and the layout group of each pack, int64 [packs]."""
    group = runs.host_head_group.expand(heads)  # a layout of one head serves all
    together = group.view(kv_heads, -1)
    per_pack = heads // kv_heads if bool((together == together[:, :1]).all()) else 1
    return per_pack, group[::per_pack]


def _alike(keys: Tensor, full: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Yield (begin, end, least FULL keys, most keys) of stretches of lines sorted by `keys`."""
    begin = 0
    while begin < len(keys):
        least = int(keys[begin])
        end = int(torch.searchsorted(keys, least + least // PADDING, right=True))
        yield begin, end, int(full[begin:end].min()), int(keys[end - 1])
        begin = end
