"""The work table of the Hopper programs: 128-row tiles of every batch entry and head, in the order of work.

Made in two programs without a host sync, since a pattern may change at every step: the cost of each entry, then its
place, which is found by counting the entries that come before it. So nothing is sorted; that is O(entries^2)
comparisons, 17 million for 16 heads of 32,768 tokens.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launcher import Launcher, launched
from ..triton.lists import TileLists
from ..triton.primitives import group_of, job_at, steps_of

ROWS = tl.constexpr(128)  # of a tile of the table: two consumers with 64 each
# Cost of a full and of a masked tile, in quarters: whole numbers add up the same in any order.
FULL, MASKED = tl.constexpr(4), tl.constexpr(5)
PROGRAMS = tl.constexpr(132)  # of an H100 or H200, one a multiprocessor: a lever for order, not a limit
_KEPT = SimpleNamespace()  # holds the recorded launches: lists are new at every step, sizes are not


@dataclass(frozen=True, eq=False)
class Work:
    """What the programs of one call walk, on the device.

    items int32 [entries, 4 + 4 * members]: batch, head, first row, the first row of the part's scratch or
    -1; then, for each member, first masked tile, masked tiles, first full tile, full tiles. counts int32
    [3]: how many entries have tiles, how many are in use, and whether a forward with this table has ever marked
    a row (repair.py); those without tiles come after those with, unused ones last. For lists by queries a head is a
    query head and has one member, itself; for lists by keys it is a key head, whose members are the query heads that
    read it, and rows are keys.
    """

    items: Tensor
    counts: Tensor


def work_of(lists: TileLists, batch: int, heads: int, members: int = 1) -> Work:
    """The table for `batch` entries and `heads` heads; made once for lists and sizes, without a host sync."""
    made = vars(lists).setdefault("_hopper_work", {})
    if (batch, heads, members) not in made:
        made[batch, heads, members] = _work(lists, batch, heads, members)
    return made[batch, heads, members]


def _work(lists: TileLists, batch: int, heads: int, members: int) -> Work:
    device, entries, row_tiles = lists.jobs.device, batch * heads * lists.jobs.shape[1], lists.line_size // ROWS.value
    items = torch.empty((entries * row_tiles, 4 + 4 * members), dtype=torch.int32, device=device)
    counts = torch.empty(3, dtype=torch.int32, device=device)
    cost = torch.empty(entries, dtype=torch.int32, device=device)
    totals = torch.zeros(2, dtype=torch.int64, device=device)
    sizes = batch, heads, lists.jobs.shape[1], lists.lines, lists.slots, members
    groups = lists.groups
    launched(
        _KEPT, (sizes, lists.line_size, groups), (lists.full_ptr, lists.masked_ptr, lists.jobs, lists.head_group),
        (cost, totals, items, counts), partial(_launch, sizes, lists.line_size, dict(groups)),
    )  # fmt: skip
    return Work(items, counts)


def _launch(
    sizes: tuple[int, ...], line_size: int, groups: dict[str, bool], launch: Launcher, full_ptr: Tensor,
    masked_ptr: Tensor, jobs: Tensor, head_group: Tensor, cost: Tensor, totals: Tensor, items: Tensor, counts: Tensor,
) -> None:  # fmt: skip
    batch, heads, n_jobs, lines, slots, members = sizes
    entries, lists = len(cost), (full_ptr, masked_ptr, jobs, head_group)
    launch(
        weigh, triton.cdiv(entries, 128), *lists, cost, totals, entries, heads, n_jobs, lines, members, N=128, **groups
    )
    launch(
        arrange, triton.cdiv(entries, 16), *lists, cost, totals, items, counts, entries, batch * heads, heads, n_jobs,
        lines, slots, members, LINE=line_size, ROW_TILES=line_size // ROWS.value, N=16,
        PEERS=min(1024, triton.next_power_of_2(entries)), num_warps=8, **groups,
    )  # fmt: skip


@triton.jit
def _entry(entry, jobs, head_group, heads, n_jobs, members, SHARED: tl.constexpr, BY_BATCH: tl.constexpr):
    """Head of all batch entries, and what the lists' own table holds for an entry: line, part, parts, slot."""
    place = entry // n_jobs
    batch, first_head = place // heads, place % heads * members
    group = group_of(head_group, batch, first_head, heads * members, SHARED, BY_BATCH)
    line, part, parts, slot = job_at(jobs, group, n_jobs, entry % n_jobs)
    return place, batch, first_head, line, tl.maximum(part, 0), tl.maximum(parts, 1), slot


@triton.jit
def _tiles(full_ptr, masked_ptr, head_group, batch, head, all_heads, lines, line, part, parts,
           SHARED: tl.constexpr, BY_BATCH: tl.constexpr):  # fmt: skip
    """First masked tile, masked tiles, first full tile and full tiles of a line's part, for one member."""
    group = group_of(head_group, batch, head, all_heads, SHARED, BY_BATCH)
    owner = group * lines + tl.maximum(line, 0)
    masked_begin, masked_end = steps_of(masked_ptr, owner, part, parts, 1)
    full_begin, full_end = steps_of(full_ptr, owner, part, parts, 1)
    return masked_begin, masked_end - masked_begin, full_begin, full_end - full_begin


@triton.jit(do_not_specialize=["entries", "heads", "n_jobs", "lines", "members"])
def weigh(full_ptr, masked_ptr, jobs, head_group, cost, totals, entries, heads, n_jobs, lines, members,
          N: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr):  # fmt: skip
    """Cost of N entries in quarters, -1 of what is unused; added to totals: all costs, entries with tiles."""
    entry = tl.program_id(0) * N + tl.arange(0, N)
    there = entry < entries
    entry = tl.where(there, entry, 0)
    _, batch, first_head, line, part, parts, _ = _entry(
        entry, jobs, head_group, heads, n_jobs, members, SHARED, BY_BATCH
    )
    quarters = tl.zeros([N], tl.int32)
    for member in range(members):
        _, masked, _, full = _tiles(full_ptr, masked_ptr, head_group, batch, first_head + member, heads * members,
                                    lines, line, part, parts, SHARED, BY_BATCH)  # fmt: skip
        quarters += masked * MASKED + full * FULL
    tl.store(cost + entry, tl.where(line >= 0, quarters, -1), mask=there)
    quarters = tl.where(there & (line >= 0), quarters, 0)
    tl.atomic_add(totals, tl.sum(quarters.to(tl.int64), 0))
    tl.atomic_add(totals + 1, tl.sum((quarters > 0).to(tl.int64), 0))


@triton.jit
def _keys(cost, entry, there, total, places, n_jobs):
    """What entries are ordered by, and their cost. # int64, int32

    Heads are worked one after the other, so that keys and values of few are read at a time, each in `total / (places *
    PROGRAMS)`, counted as cost. An entry is due by the end of its head's turn and begins so much earlier as it takes:
    one longer than a turn while other heads are worked, and no head leaves long ones for the end, when nothing else is
    left to do beside them. Those without tiles come after all others, unused ones last.
    """
    quarters = tl.load(cost + entry, mask=there, other=-1)
    begins = (entry // n_jobs).to(tl.int64) * total - quarters.to(tl.int64) * PROGRAMS * places
    last = tl.where(quarters > 0, 0, tl.where(quarters == 0, 1, 2)).to(tl.int64)
    return begins + last * 2305843009213693952, quarters


@triton.jit(do_not_specialize=["entries", "places", "heads", "n_jobs", "lines", "slots", "members"])
def arrange(full_ptr, masked_ptr, jobs, head_group, cost, totals, items, counts, entries, places, heads, n_jobs,
            lines, slots, members, LINE: tl.constexpr, ROW_TILES: tl.constexpr, N: tl.constexpr, PEERS: tl.constexpr,
            SHARED: tl.constexpr, BY_BATCH: tl.constexpr):  # fmt: skip
    """N entries to their places: behind all with a smaller key, and those with the same that come first."""
    entry = tl.program_id(0) * N + tl.arange(0, N)
    there = entry < entries
    entry = tl.where(there, entry, 0)
    total, busy_entries = tl.load(totals), tl.load(totals + 1)
    key, _ = _keys(cost, entry, there, total, places, n_jobs)
    at = tl.zeros([N], tl.int32)
    used = 0
    for begin in range(0, entries, PEERS):
        peer = begin + tl.arange(0, PEERS)
        real = peer < entries
        their_key, quarters = _keys(cost, peer, real, total, places, n_jobs)
        before = (their_key[None, :] < key[:, None]) | (
            (their_key[None, :] == key[:, None]) & (peer[None, :] < entry[:, None])
        )
        at += tl.sum((before & real[None, :]).to(tl.int32), 1)
        used += tl.sum((real & (quarters >= 0)).to(tl.int32), 0)
    if tl.program_id(0) == 0:
        tl.store(counts, busy_entries.to(tl.int32) * ROW_TILES)
        tl.store(counts + 1, used * ROW_TILES)
        tl.store(counts + 2, 0)
    place, batch, first_head, line, part, parts, slot = _entry(
        entry, jobs, head_group, heads, n_jobs, members, SHARED, BY_BATCH
    )
    scratch = (place * slots + slot) * LINE
    for down in tl.static_range(ROW_TILES):
        item = items + (at * ROW_TILES + down).to(tl.int64) * (4 + 4 * members)
        tl.store(item, batch, mask=there)
        tl.store(item + 1, place % heads, mask=there)
        tl.store(item + 2, line * LINE + down * ROWS, mask=there)
        tl.store(item + 3, tl.where(slot >= 0, scratch + down * ROWS, -1), mask=there)
    for member in range(members):
        masked_begin, masked, full_begin, full = _tiles(
            full_ptr, masked_ptr, head_group, batch, first_head + member, heads * members, lines, line, part, parts,
            SHARED, BY_BATCH,
        )  # fmt: skip
        for down in tl.static_range(ROW_TILES):
            item = items + (at * ROW_TILES + down).to(tl.int64) * (4 + 4 * members) + 4 + member * 4
            tl.store(item, masked_begin, mask=there)
            tl.store(item + 1, masked, mask=there)
            tl.store(item + 2, full_begin, mask=there)
            tl.store(item + 3, full, mask=there)
