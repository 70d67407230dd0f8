"""lists_from_mask: TileLists of a block mask in three programs, without a host sync.

Count each line's tiles, add the counts up, put units, bands and the work table in their places. A line's place in
the table is found by counting the lines that come before it, so nothing is sorted; that is O(lines^2) comparisons a
group, as many as a square mask has tiles. Bytes moved: the mask twice, and what is kept. The lists have room for
every tile; past a group's last one they are not written.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launcher import Launcher, launched
from .lists import TileLists
from .mask_side import MaskSide

QUARTERS = 4, 5  # a full and a masked tile's cost (1 and 1.25), in quarters: whole numbers add up the same in any order
_KEPT = SimpleNamespace()  # holds the recorded launches: lists are new at every step, sizes are not


@triton.jit
def _chunk(mask, group, line, step, lines, others, own_len, length, offset,
           OWN: tl.constexpr, UNITS: tl.constexpr, GRANULE: tl.constexpr, CAUSAL: tl.constexpr,
           TRANSPOSED: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """Which units of some lines are kept and wholly allowed, and which hold an allowed pair. # [LN, N], [LN, N], [N]"""
    number = step * N + tl.arange(0, N)
    other = number // UNITS
    base = mask + group.to(tl.int64) * lines * others
    if TRANSPOSED:
        at = base + other[None, :].to(tl.int64) * lines + line[:, None]
    else:
        at = base + line[:, None].to(tl.int64) * others + other[None, :]
    kept = tl.load(at, mask=(line < lines)[:, None] & (other < others)[None, :], other=0) != 0
    unit = number * GRANULE
    some, whole = kept & (unit < length)[None, :], kept & (unit + GRANULE <= length)[None, :]
    if CAUSAL:
        first = (line * OWN)[:, None]
        last = tl.minimum(first + OWN, own_len) - 1
        if TRANSPOSED:
            some &= first - (unit + (GRANULE - 1))[None, :] <= offset
            whole &= last - unit[None, :] <= offset
        else:
            some &= unit[None, :] - last <= offset
            whole &= (unit + (GRANULE - 1))[None, :] - first <= offset
    return whole, some, unit


@triton.jit
def _steps(first_line, units, own_len, offset, OWN: tl.constexpr, GRANULE: tl.constexpr, CAUSAL: tl.constexpr,
           TRANSPOSED: tl.constexpr, LN: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """First and last + 1 step that may hold an allowed pair of LN lines. # int32 each"""
    begin, end = 0, tl.cdiv(units, N)
    if CAUSAL:
        if TRANSPOSED:
            begin = tl.maximum(first_line * OWN - offset - (GRANULE - 1), 0) // GRANULE // N
        else:
            reach = tl.minimum(first_line * OWN + LN * OWN, own_len) - 1 + offset
            end = tl.minimum(end, tl.where(reach < 0, 0, reach // GRANULE // N + 1))
    return begin, end


@triton.jit(do_not_specialize=["lines", "others", "units", "own_len", "length", "offset"])
def count(mask, full_ptr, masked_ptr, lines, others, units, own_len, length, offset,
          OWN: tl.constexpr, UNITS: tl.constexpr, GRANULE: tl.constexpr, PER_TILE: tl.constexpr,
          CAUSAL: tl.constexpr, TRANSPOSED: tl.constexpr, LN: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """Full and masked tiles of LN lines, written one place after their own. Grid: [groups * ceil(lines / LN)]."""
    chunks = tl.cdiv(lines, LN)
    group, first_line = tl.program_id(0) // chunks, tl.program_id(0) % chunks * LN
    line = first_line + tl.arange(0, LN)
    full, some = tl.zeros([LN], tl.int32), tl.zeros([LN], tl.int32)
    begin, end = _steps(first_line, units, own_len, offset, OWN, GRANULE, CAUSAL, TRANSPOSED, LN, N)
    for step in range(begin, end):
        is_whole, is_some, _ = _chunk(mask, group, line, step, lines, others, own_len, length, offset,
                                      OWN, UNITS, GRANULE, CAUSAL, TRANSPOSED, N)  # fmt: skip
        full += tl.sum(is_whole.to(tl.int32), 1)
        some += tl.sum(is_some.to(tl.int32), 1)
    tiles = full // PER_TILE  # full units fill whole tiles; the few left over join the masked tiles
    place = 1 + group * lines + line
    tl.store(full_ptr + place, tiles, mask=line < lines)
    tl.store(masked_ptr + place, tl.cdiv(some - tiles * PER_TILE, PER_TILE), mask=line < lines)


@triton.jit(do_not_specialize=["total", "groups"])
def add_up(full_ptr, masked_ptr, head_group, total, groups, N: tl.constexpr):
    """Counts -> pointers, in place, and the groups' numbers. One program."""
    n = tl.arange(0, N)
    tl.store(full_ptr, 0)
    tl.store(masked_ptr, 0)
    full, masked = 0, 0
    for at in range(0, total, N):
        there = at + n < total
        more = tl.load(full_ptr + 1 + at + n, mask=there, other=0)
        tl.store(full_ptr + 1 + at + n, full + tl.cumsum(more, 0), mask=there)
        full += tl.sum(more, 0)
        more = tl.load(masked_ptr + 1 + at + n, mask=there, other=0)
        tl.store(masked_ptr + 1 + at + n, masked + tl.cumsum(more, 0), mask=there)
        masked += tl.sum(more, 0)
    for at in range(0, groups, N):
        tl.store(head_group + at + n, at + n, mask=at + n < groups)


@triton.jit
def _quarters(full_ptr, masked_ptr, begin, end, there, FULL: tl.constexpr, MASKED: tl.constexpr):
    """Cost of the tiles between two lines, in quarters of a full tile. # int64"""
    full = tl.load(full_ptr + end, mask=there, other=0) - tl.load(full_ptr + begin, mask=there, other=0)
    masked = tl.load(masked_ptr + end, mask=there, other=0) - tl.load(masked_ptr + begin, mask=there, other=0)
    return full.to(tl.int64) * FULL + masked.to(tl.int64) * MASKED


@triton.jit
def _parts(quarters, limit):
    """Parts of lines with this cost, and the cost of one. # int32, float32"""
    cost = quarters.to(tl.float32) * 0.25
    parts = tl.maximum(tl.ceil(tl.div_rn(cost, tl.zeros_like(cost) + limit)), 1.0)
    return parts.to(tl.int32), tl.div_rn(cost, parts)


@triton.jit(do_not_specialize=["groups", "lines", "others", "units", "own_len", "length", "offset", "ctas", "shortest",
                                   "extra"])  # fmt: skip
def place(mask, full_ptr, masked_ptr, full_units, masked_units, low, high, bits, jobs, splits,
          groups, lines, others, units, own_len, length, offset, ctas, shortest, extra,
          OWN: tl.constexpr, UNITS: tl.constexpr, GRANULE: tl.constexpr, PER_TILE: tl.constexpr,
          CAUSAL: tl.constexpr, TRANSPOSED: tl.constexpr, LN: tl.constexpr, N: tl.constexpr,
          EDGE: tl.constexpr, FULL: tl.constexpr, MASKED: tl.constexpr, M: tl.constexpr):  # fmt: skip
    """Units of LN lines and their entries of the work table. Grid: [groups * ceil(lines / LN)]."""
    chunks = tl.cdiv(lines, LN)
    group, first_line = tl.program_id(0) // chunks, tl.program_id(0) % chunks * LN
    line = first_line + tl.arange(0, LN)
    real = line < lines
    owner = group * lines + line
    full_at = tl.load(full_ptr + owner, mask=real, other=0)
    quota = (tl.load(full_ptr + owner + 1, mask=real, other=0) - full_at) * PER_TILE
    masked_at = tl.load(masked_ptr + owner, mask=real, other=0).to(tl.int64) * PER_TILE
    masked_end = tl.load(masked_ptr + owner + 1, mask=real, other=0).to(tl.int64) * PER_TILE
    full_units += full_at.to(tl.int64)[:, None] * PER_TILE
    full = tl.zeros([LN], tl.int32)
    begin, end = _steps(first_line, units, own_len, offset, OWN, GRANULE, CAUSAL, TRANSPOSED, LN, N)
    for step in range(begin, end):
        is_whole, is_some, unit = _chunk(mask, group, line, step, lines, others, own_len, length, offset,
                                         OWN, UNITS, GRANULE, CAUSAL, TRANSPOSED, N)  # fmt: skip
        whole = is_whole.to(tl.int32)
        rank = full[:, None] + tl.cumsum(whole, 1) - whole
        is_full = is_whole & (rank < quota[:, None])
        values = tl.zeros([LN, N], tl.int32) + unit[None, :]
        tl.store(full_units + rank, values, mask=is_full)
        is_masked = is_some & (is_full == 0)
        masked = is_masked.to(tl.int32)
        at = masked_at[:, None] + tl.cumsum(masked, 1) - masked
        tl.store(masked_units + at, values, mask=is_masked)
        tl.store(low + at, -EDGE, mask=is_masked)
        tl.store(high + at, offset if CAUSAL else EDGE, mask=is_masked)
        tl.store(bits + at, -1, mask=is_masked)
        full += tl.sum(whole, 1)
        masked_at += tl.sum(masked, 1)
    at = masked_at[:, None] + tl.arange(0, PER_TILE)[None, :]  # what a line's last tile leaves has an empty band
    unused = at < masked_end[:, None]
    tl.store(masked_units + at, 0, mask=unused)
    tl.store(low + at, 1, mask=unused)
    tl.store(high + at, 0, mask=unused)
    tl.store(bits + at, -1, mask=unused)

    # The work table. ceil(cost / limit) - 1 summed over a group's lines is at most `extra`.
    limit = _quarters(full_ptr, masked_ptr, 0, groups * lines, True, FULL, MASKED).to(tl.float32) * 0.25
    limit = tl.maximum(tl.div_rn(limit, 1.0 * ctas), shortest * 1.0)
    own_sum = _quarters(full_ptr, masked_ptr, group * lines, group * lines + lines, True, FULL, MASKED)
    share = tl.div_rn(own_sum.to(tl.float32) * 0.25, tl.maximum(extra, 1) * 1.0)
    limit = tl.where(extra > 0, tl.maximum(limit, share), float("inf"))
    parts, share = _parts(_quarters(full_ptr, masked_ptr, owner, owner + 1, real, FULL, MASKED), limit)
    rank, row, slot = tl.zeros([LN], tl.int32), tl.zeros([LN], tl.int32), tl.zeros([LN], tl.int32)
    n_parts, n_many = 0, 0
    for begin_line in range(0, lines, M):
        peer = begin_line + tl.arange(0, M)
        there = peer < lines
        theirs = group * lines + peer
        cost = _quarters(full_ptr, masked_ptr, theirs, theirs + 1, there, FULL, MASKED)
        peer_parts, peer_share = _parts(cost, limit)
        peer_parts = tl.where(there, peer_parts, 0)
        slots = tl.where(peer_parts > 1, peer_parts, 0)
        earlier = peer[None, :] < line[:, None]
        equal = peer_share[None, :] == share[:, None]
        ahead = (peer_share[None, :] > share[:, None]) | (equal & earlier)  # equal shares stay in order
        rank += tl.sum(tl.where(ahead, peer_parts[None, :], 0), 1)
        slot += tl.sum(tl.where(earlier, slots[None, :], 0), 1)
        row += tl.sum((earlier & (slots > 0)[None, :]).to(tl.int32), 1)
        n_parts += tl.sum(peer_parts, 0)
        n_many += tl.sum((slots > 0).to(tl.int32), 0)
    many = real & (parts > 1)
    jobs += group.to(tl.int64) * (lines + extra) * 4
    splits += group.to(tl.int64) * extra * 3
    for part in range(0, tl.max(tl.where(real, parts, 0), 0)):
        entry = jobs + (rank + part) * 4
        mine = real & (part < parts) & (rank + part < lines + extra)
        tl.store(entry, line, mask=mine)
        tl.store(entry + 1, part, mask=mine)
        tl.store(entry + 2, parts, mask=mine)
        tl.store(entry + 3, tl.where(many, slot + part, -1), mask=mine)
    mine = many & (row < extra)
    tl.store(splits + row * 3, line, mask=mine)
    tl.store(splits + row * 3 + 1, slot, mask=mine)
    tl.store(splits + row * 3 + 2, parts, mask=mine)
    if first_line == 0:  # what the group does not use
        for at_job in range(n_parts * 4, (lines + extra) * 4, M):
            left = at_job + tl.arange(0, M)
            tl.store(jobs + left, -1, mask=left < (lines + extra) * 4)
        for at_split in range(n_many * 3, extra * 3, M):
            left = at_split + tl.arange(0, M)
            tl.store(splits + left, -1, mask=left < extra * 3)


def lists_from_mask(mask: Tensor, side: MaskSide, *, edge: int, ctas: int, shortest: int) -> TileLists:
    """The lists of a contiguous bool mask [batch, heads, q_blocks, kv_blocks] with at least one tile.

    `edge` stands for no bound; a line is split where it has more tiles than `ctas` programs have on average,
    into parts of at least `shortest` tiles.
    """
    device, lines = mask.device, side.groups * side.lines

    def made(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=device)

    full_ptr, masked_ptr, full_units = made(lines + 1), made(lines + 1), made(lines * side.units)
    masked_units, low, high, bits = (made(lines * side.room) for _ in range(4))
    head_group = made(*mask.shape[:2]) if mask.shape[0] > 1 else made(mask.shape[1])
    jobs, splits = made(side.groups, side.lines + side.extra, 4), made(side.groups, side.extra, 3)
    launched(
        _KEPT, (side, edge, ctas, shortest), (mask.view(torch.uint8),),
        (full_ptr, masked_ptr, full_units, masked_units, low, high, bits, jobs, splits, head_group),
        partial(_launch, side, edge, ctas, shortest),
    )  # fmt: skip
    own, other = side.own, side.other
    block_q, block_k = (other, own) if side.transposed else (own, other)
    masks = torch.empty((0, block_k, -(-block_q // 8)), dtype=torch.uint8, device=device)
    numbers = torch.tensor(side.numbers, device="cpu")
    return TileLists(
        numbers, full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs, splits
    )


def _launch(
    side: MaskSide, edge: int, ctas: int, shortest: int, launch: Launcher, mask: Tensor, full_ptr: Tensor,
    masked_ptr: Tensor, full_units: Tensor, masked_units: Tensor, low: Tensor, high: Tensor, bits: Tensor,
    jobs: Tensor, splits: Tensor, head_group: Tensor,
) -> None:  # fmt: skip
    """The three programs. Where lines are columns of the mask, 32 neighbours are read together."""
    across = min(triton.next_power_of_2(side.units), 64 if side.transposed else 1024)
    down = 32 if side.transposed else max(1, 1024 // across)
    down = min(down, triton.next_power_of_2(side.lines))
    sizes = side.lines, side.others, side.units, side.own_len, side.length, side.offset
    constants = {
        "OWN": side.own, "UNITS": side.other // side.granule, "GRANULE": side.granule, "PER_TILE": side.per_tile,
        "CAUSAL": side.causal, "TRANSPOSED": side.transposed, "LN": down, "N": across,
    }  # fmt: skip
    grid = side.groups * triton.cdiv(side.lines, down)
    launch(count, grid, mask, full_ptr, masked_ptr, *sizes, **constants)
    launch(add_up, 1, full_ptr, masked_ptr, head_group, side.groups * side.lines, side.groups, N=4096, num_warps=8)
    launch(
        place, grid, mask, full_ptr, masked_ptr, full_units, masked_units, low, high, bits, jobs, splits,
        side.groups, *sizes, ctas, shortest, side.extra,
        **constants, EDGE=edge, FULL=QUARTERS[0], MASKED=QUARTERS[1],
        M=min(256, max(32, triton.next_power_of_2(side.lines))),
    )  # fmt: skip
