"""BlockMask: which tiles each batch entry and head keeps, on a device, and its lists without a host sync.

Everything here has a shape that follows from shapes alone, so no number comes back to the host: lists have room
for every tile of the mask. On CUDA three Triton programs make those of a direction; `lists_in_torch` says the same
in torch's operations, where what is not kept is written to one spare place past the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from pattern_studio.layout import UNBOUNDED, BlockLayout, Runs, TileKind
from pattern_studio.problem import Problem

from .kernels import fused
from .kernels.triton.lists import TileLists
from .kernels.triton.mask_side import MaskSide
from .tiles import CTAS, EDGE, MASKED_COST, SHORTEST_PART


@dataclass(frozen=True, eq=False)
class BlockMask:
    """Kept tiles, bool [batch or 1, heads or 1, q_blocks, kv_blocks]; with `causal`, pairs of them with j <= i only."""

    mask: Tensor
    problem: Problem
    block: tuple[int, int]
    causal: bool

    def query_lists(self) -> TileLists:
        """Lists of key tiles for each query block: forward and dQ."""
        return self._lists(transposed=False)

    def key_lists(self) -> TileLists:
        """Lists of query tiles for each key block: dK and dV."""
        return self._lists(transposed=True)

    def side(self, transposed: bool) -> MaskSide:
        """Sizes of the lists in one direction."""
        offset = max(-EDGE, min(EDGE, self.problem.offset))
        lengths = self.problem.q_len, self.problem.kv_len
        return _side(tuple(self.mask.shape), self.block, lengths, offset, self.causal, transposed)

    def _lists(self, transposed: bool) -> TileLists:
        side = self.side(transposed)
        if self._has_programs():
            from .kernels.triton.lists_from_mask import lists_from_mask

            return lists_from_mask(self.mask, side, edge=EDGE, ctas=CTAS, shortest=SHORTEST_PART)
        return lists_in_torch(self.mask, side)

    def _has_programs(self) -> bool:
        """Whether Triton makes the lists: not while a compiler traces, nor for tensors without data."""
        mask = self.mask
        real = type(mask) is Tensor and mask.is_cuda and mask.numel() > 0 and mask.is_contiguous()
        return real and fused.INSTALLED and not torch.compiler.is_compiling()

    def layout(self) -> BlockLayout:
        """The same tiles as a layout of batch * heads heads. Waits for the device."""
        kept = self.mask.flatten(0, 1).cpu().numpy()
        (block_q, block_k), problem = self.block, self.problem
        kind = np.where(kept, TileKind.FULL, TileKind.EMPTY).astype(np.uint8)
        if self.causal:
            first_i = np.arange(kept.shape[1])[:, None] * block_q + problem.offset
            last_i = np.minimum(first_i + block_q, problem.q_len + problem.offset) - 1
            first_j = np.arange(kept.shape[2]) * block_k
            last_j = np.minimum(first_j + block_k, problem.kv_len) - 1
            kind[kept & (last_j > first_i)] = TileKind.BAND
            kind[kept & (first_j > last_i)] = TileKind.EMPTY
        group, line, column = np.nonzero(kind)
        found = kind[group, line, column]
        rows = Runs.from_sorted(
            kept.shape[0] * kept.shape[1], group * kept.shape[1] + line, column, column + 1, found, np.zeros_like(found)
        )
        bands = np.array([[-UNBOUNDED, 0]] if self.causal else [], np.int64).reshape(-1, 2)
        heads = Problem(problem.q_len, problem.kv_len, problem.q_offset, len(kept))
        bits = np.zeros((0, -(-block_q * block_k // 8)), np.uint8)
        return BlockLayout(heads, self.block, np.arange(len(kept), dtype=np.int32), rows, bands, bits)


@lru_cache(maxsize=256)
def _side(
    shape: tuple[int, ...],
    block: tuple[int, int],
    lengths: tuple[int, int],
    offset: int,
    causal: bool,
    transposed: bool,
) -> MaskSide:
    lines, others = shape[3:1:-1] if transposed else shape[2:]
    own, other = block[::-1] if transposed else block
    own_len, length = lengths[::-1] if transposed else lengths
    sizes = MaskSide(
        shape[0] * shape[1], lines, others, own, other, own_len, length, offset, causal, transposed, extra=0
    )
    return replace(sizes, extra=spare_parts(lines, sizes.units // sizes.per_tile))


def lists_in_torch(mask: Tensor, side: MaskSide) -> TileLists:
    """The lists of a mask [batch, heads, q_blocks, kv_blocks], by torch's operations: for any device, and to trace."""
    device, granule, per_tile, offset = mask.device, side.granule, side.per_tile, side.offset
    # Tiles -> units of `granule` positions, and which pairs of each are allowed.
    kept = (mask.mT if side.transposed else mask).reshape(side.groups, side.lines, side.others)
    kept = kept.repeat_interleave(side.other // granule, -1)  # [groups, lines, units]
    unit = torch.arange(side.units, device=device, dtype=torch.int32) * granule  # [units]
    first = torch.arange(side.lines, device=device, dtype=torch.int32)[:, None] * side.own  # [lines, 1]
    last = torch.clamp(first + side.own, max=side.own_len) - 1
    some, whole = unit < side.length, unit + granule <= side.length  # of a unit's pairs exist
    if side.causal and side.transposed:
        some, whole = some & (first - (unit + granule - 1) <= offset), whole & (last - unit <= offset)
    elif side.causal:
        some, whole = some & (unit - last <= offset), whole & (unit + granule - 1 - first <= offset)

    # Full units fill whole tiles; the few left over at a line's end join its masked tiles.
    full = kept & whole
    full_tiles = full.sum(-1) // per_tile  # [groups, lines]
    rank = full.cumsum(-1) - 1
    full &= rank < full_tiles[..., None] * per_tile
    masked = kept & some & ~full
    masked_tiles = -(-masked.sum(-1) // per_tile)
    masked_ptr = _pointers(masked_tiles)
    place = masked_ptr[:-1].view(side.groups, side.lines, 1) * per_tile + masked.cumsum(-1) - 1
    high = torch.full_like(unit, offset if side.causal else EDGE)

    def spread(values: Tensor, fill: int) -> Tensor:
        return _placed(values, masked, place, side.groups * side.lines * side.room, fill)

    full_ptr = _pointers(full_tiles)
    full_place = full_ptr[:-1].view(side.groups, side.lines, 1) * per_tile + rank
    jobs, splits = work_table(full_tiles + MASKED_COST * masked_tiles, side.extra)
    block_q, block_k = (side.other, side.own) if side.transposed else (side.own, side.other)
    return TileLists(
        numbers=torch.tensor(side.numbers, device="cpu"),
        full_ptr=full_ptr,
        full_units=_placed(unit, full, full_place, kept.numel(), 0),
        masked_ptr=masked_ptr,
        masked_units=spread(unit, 0),
        low=spread(torch.full_like(unit, -EDGE), 1),
        high=spread(high, 0),
        bits=spread(torch.full_like(unit, -1), -1),
        masks=torch.zeros(0, block_k, -(-block_q // 8), dtype=torch.uint8, device=device),
        head_group=_head_group(mask),
        jobs=jobs,
        splits=splits,
    )


def _head_group(mask: Tensor) -> Tensor:
    """int32 [heads or 1], or [batch, heads or 1] where batch entries differ."""
    numbers = torch.arange(mask.shape[0] * mask.shape[1], dtype=torch.int32, device=mask.device)
    return numbers.view(mask.shape[:2]) if mask.shape[0] > 1 else numbers


def _pointers(counts: Tensor) -> Tensor:
    """int32 [lines + 1]: where each line's tiles begin."""
    return torch.nn.functional.pad(counts.flatten().cumsum(0), (1, 0)).int()


def _placed(values: Tensor, chosen: Tensor, place: Tensor, room: int, fill: int) -> Tensor:
    """int32 [room]: the chosen values at their places, `fill` elsewhere."""
    out = torch.full((room + 1,), fill, dtype=torch.int32, device=chosen.device)
    at = torch.where(chosen, place, room)
    return out.scatter_(0, at.flatten().long(), values.expand(chosen.shape).flatten())[:room]


def spare_parts(lines: int, most: int) -> int:
    """Parts beyond its `lines`, of at most `most` tiles each, that a group's work table has room for."""
    return min(int(lines * most * MASKED_COST) // SHORTEST_PART, max(8, lines // 8))


def work_table(cost: Tensor, extra: int) -> tuple[Tensor, Tensor]:
    """Jobs int32 [groups, jobs, 4] and splits int32 [groups, splits, 3] of lines with `cost` [groups, lines] tiles.

    Most work first; a line above the mean load of a program is split. A group gets room for `extra` parts
    beyond its lines, and splits no finer than they serve: rows of -1 fill what is left.
    """
    groups, lines = cost.shape
    device = cost.device
    # ceil(cost / limit) - 1 summed over a group's lines is at most sum(cost) / limit, so at most `extra`.
    limit = torch.clamp(cost.sum() / CTAS, min=SHORTEST_PART)
    limit = torch.maximum(limit, cost.sum(-1, keepdim=True) / max(extra, 1))  # [groups, 1]
    parts = torch.clamp(torch.ceil(cost / limit), min=1).long() if extra else torch.ones_like(cost, dtype=torch.int64)
    many = parts > 1
    slots = torch.where(many, parts, 0)
    first_slot = torch.where(many, slots.cumsum(-1) - slots, -1)

    ends = parts.cumsum(-1)  # [groups, lines]
    job = torch.arange(lines + extra, device=device).expand(groups, -1).contiguous()
    line = torch.searchsorted(ends, job, right=True)
    used = line < lines
    line = line.clamp(max=max(lines - 1, 0))
    if lines:
        part = job - (ends - parts).gather(1, line)
        of, slot = parts.gather(1, line), first_slot.gather(1, line)
        share = torch.where(used, cost.gather(1, line) / of, -1.0)
        table = torch.stack([line, part, of, torch.where(slot >= 0, slot + part, -1)], -1)
        table = torch.where(used[..., None], table, -1)
        order = share.sort(dim=-1, descending=True, stable=True).indices  # equal shares stay in order
        table = table.gather(1, order[..., None].expand(-1, -1, 4))
    else:
        table = torch.full((groups, 0, 4), -1, device=device)

    row = torch.where(many, many.cumsum(-1) - 1, extra)[..., None].expand(-1, -1, 3)
    numbers = torch.arange(lines, device=device).expand(groups, -1)
    splits = torch.full((groups, extra + 1, 3), -1, dtype=torch.int64, device=device)
    splits = splits.scatter_(1, row, torch.stack([numbers, first_slot, parts], -1))[:, :extra]
    return table.int(), splits.int().contiguous()
