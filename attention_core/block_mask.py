"""BlockMask: which tiles each batch entry and head keeps, on a device, and its lists without a host sync.

Everything here has a shape that follows from shapes alone, so no number comes back to the host: lists
have room for every tile of the mask, and what is not kept is written to one spare place past their end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pattern_studio.layout import UNBOUNDED, BlockLayout, Runs, TileKind
from pattern_studio.problem import Problem

from .kernels.triton.lists import TileLists
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
        return self._lists(self.mask, self.block, (self.problem.q_len, self.problem.kv_len), transposed=False)

    def key_lists(self) -> TileLists:
        """Lists of query tiles for each key block: dK and dV."""
        lengths = self.problem.kv_len, self.problem.q_len
        block_q, block_k = self.block
        return self._lists(self.mask.mT, (block_k, block_q), lengths, transposed=True)

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

    def _lists(self, mask: Tensor, sides: tuple[int, int], lengths: tuple[int, int], transposed: bool) -> TileLists:
        (own, other), (own_len, length), device = sides, lengths, mask.device
        groups, lines = mask.shape[0] * mask.shape[1], mask.shape[2]
        granule = min(other & -other, 128)
        tile = max(64, granule)
        per_tile = tile // granule

        # Tiles -> units of `granule` positions, and which pairs of each are allowed.
        kept = mask.reshape(groups, lines, mask.shape[3]).repeat_interleave(
            other // granule, -1
        )  # [groups, lines, units]
        unit = torch.arange(kept.shape[2], device=device, dtype=torch.int32) * granule  # [units]
        first = torch.arange(lines, device=device, dtype=torch.int32)[:, None] * own  # [lines, 1]
        last = torch.clamp(first + own, max=own_len) - 1
        some, whole = unit < length, unit + granule <= length  # of a unit's pairs exist
        offset = max(-EDGE, min(EDGE, self.problem.offset))
        if self.causal and transposed:
            some, whole = some & (first - (unit + granule - 1) <= offset), whole & (last - unit <= offset)
        elif self.causal:
            some, whole = some & (unit - last <= offset), whole & (unit + granule - 1 - first <= offset)

        # Full units fill whole tiles; the few left over at a line's end join its masked tiles.
        full = kept & whole
        full_tiles = full.sum(-1) // per_tile  # [groups, lines]
        rank = full.cumsum(-1) - 1
        full &= rank < full_tiles[..., None] * per_tile
        masked = kept & some & ~full
        masked_tiles = -(-masked.sum(-1) // per_tile)
        # Left over from full tiles, the ragged end, and with a diagonal the units that it cuts.
        most = per_tile + ((own + granule) // granule + 1 if self.causal else 0)
        room = -(-min(most, kept.shape[2]) // per_tile) * per_tile
        masked_ptr = _pointers(masked_tiles)
        place = masked_ptr[:-1].view(groups, lines, 1) * per_tile + masked.cumsum(-1) - 1
        high = torch.full_like(unit, offset if self.causal else EDGE)

        def spread(values: Tensor, fill: int) -> Tensor:
            return _placed(values, masked, place, groups * lines * room, fill)

        full_ptr = _pointers(full_tiles)
        jobs, splits = work_table(full_tiles + MASKED_COST * masked_tiles, kept.shape[2] // per_tile)
        numbers = [own, lines, granule, tile, *self.block, 2 * splits.shape[1], 0, 0]
        return TileLists(
            numbers=torch.tensor(numbers, device="cpu"),
            full_ptr=full_ptr,
            full_units=_placed(unit, full, full_ptr[:-1].view(groups, lines, 1) * per_tile + rank, kept.numel(), 0),
            masked_ptr=masked_ptr,
            masked_units=spread(unit, 0),
            low=spread(torch.full_like(unit, -EDGE), 1),
            high=spread(high, 0),
            bits=spread(torch.full_like(unit, -1), -1),
            masks=torch.zeros(0, self.block[1], -(-self.block[0] // 8), dtype=torch.uint8, device=device),
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


def work_table(cost: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Jobs int32 [groups, jobs, 4] and splits int32 [groups, splits, 3] of lines with `cost` [groups, lines] tiles.

    Most work first; a line far above the mean load of a program is split. `most` is the most tiles a
    line can have. A group gets room for a fixed number of parts beyond its lines, and splits no finer
    than they serve: rows of -1 fill what is left.
    """
    groups, lines = cost.shape
    device = cost.device
    extra = min(int(lines * most * MASKED_COST) // SHORTEST_PART, max(8, lines // 8))
    if not extra or not lines:
        extra = 0
    # ceil(cost / limit) - 1 summed over a group's lines is at most sum(cost) / limit, so at most `extra`.
    limit = torch.clamp(cost.sum() / (2 * CTAS), min=SHORTEST_PART)
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
