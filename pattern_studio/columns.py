"""What a strip of query rows sees along the keys: the interval algebra behind exact lowering.

A *strip* is a stretch of consecutive query positions (a query block, or the part of one that lies
in a document). For a strip a pattern is described by *column runs*: stretches of key positions
whose columns (one key, all rows of the strip) share a state:

- ALL: every row keeps the key,
- BAND: some rows do, exactly those with `lo <= j - i <= hi`,
- SOME: some rows may; settled later by evaluating the predicate,
- NONE: no row does (stretches that no run names).

Runs compose under Kleene's three-valued logic (kleene.py), so composites keep the shortcuts of their
parts; the cost is that of sorting the runs, never of the keys or pairs that they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import StudioError
from .kleene import ALL, BAND, NONE, SOME, Value
from .layout import UNBOUNDED
from .order import order_of

MAX_RUNS = 2**27  # runs of one pattern node: about 5 GB of working arrays

Ints = NDArray[Any]  # int64; numpy's stubs do not follow integer arithmetic far enough to say so


@dataclass(frozen=True)
class Scope:
    """What a pattern that depends on the problem may ask: all in absolute (or re-based) positions.

    `kv_len` is an int, or an array with one entry per strip or pair (inside documents);
    `doc_ends` holds the exclusive end of each document; `block` is what `unit=block` stands for.
    """

    kv_len: int | Ints | None = None
    doc_ends: tuple[int, ...] | None = None
    block: tuple[int, int] | None = None

    def at(self, index: Ints) -> Scope:
        """The scope of chosen strips."""
        return replace(self, kv_len=self.kv_len[index]) if isinstance(self.kv_len, np.ndarray) else self


@dataclass(frozen=True)
class Strips:
    """Query strips `first..last` (inclusive) and the keys `key_first : key_stop` each is asked about.

    All int64 [strips], absolute positions.
    """

    first: Ints
    last: Ints
    key_first: Ints
    key_stop: Ints

    def __len__(self) -> int:
        return len(self.first)

    def take(self, index: NDArray | slice) -> Strips:
        """The strips chosen by an index or a mask."""
        return Strips(*(a[index] for a in (self.first, self.last, self.key_first, self.key_stop)))

    @property
    def height(self) -> Ints:
        """Rows of each strip."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Columns:
    """Column runs, sorted by (strip, start), apart within a strip: int64 [runs], state uint8 [runs].

    `lo` and `hi` are the band of a BAND run, else -UNBOUNDED and UNBOUNDED.
    """

    strip: Ints
    start: Ints
    stop: Ints
    state: NDArray[np.uint8]
    lo: Ints
    hi: Ints

    def __len__(self) -> int:
        return len(self.strip)

    def take(self, index: NDArray | slice) -> Columns:
        """The runs chosen by an index or a mask."""
        if isinstance(index, np.ndarray) and index.dtype == bool:
            index = np.flatnonzero(index)  # once, not for every array
        return Columns(*(a[index] for a in (self.strip, self.start, self.stop, self.state, self.lo, self.hi)))


def too_many_runs(total: int) -> StudioError:
    """The error for a layout that would not fit."""
    return StudioError(
        f"this pattern has about {total:,} key runs at this block size, more than the {MAX_RUNS:,} that are built; "
        "use a larger block, a shorter problem or a coarser pattern"
    )


def ragged(counts: Ints) -> tuple[Ints, Ints]:
    """Owner and rank of each item when owner `n` has `counts[n]` items: [2, 2] -> ([0, 0, 1, 1], [0, 1, 0, 1])."""
    total = int(counts.sum())
    if total > MAX_RUNS:
        raise too_many_runs(total)
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)


def uniform(strips: Strips, state: int) -> Columns:
    """One state over all keys of every strip."""
    index = np.arange(len(strips)) if state else np.zeros(0, np.int64)
    return intervals(strips, index, strips.key_first[index], strips.key_stop[index], state)


def cut(strips: Strips, strip: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Key intervals cut to their strips' keys, and which of them are not empty then."""
    start, stop = np.maximum(start, strips.key_first[strip]), np.minimum(stop, strips.key_stop[strip])
    return start, stop, start < stop


def intervals(
    strips: Strips,
    strip: Ints,
    start: Ints,
    stop: Ints,
    state: int | NDArray,
    lo: int | Ints = -UNBOUNDED,
    hi: int | Ints = UNBOUNDED,
) -> Columns:
    """Runs from key intervals in order and apart; cut to each strip's keys, empty ones dropped."""
    start, stop, keep = cut(strips, strip, start, stop)
    rest = (np.broadcast_to(a, keep.shape)[keep] for a in (np.asarray(state, np.uint8), lo, hi))
    return Columns(strip[keep], start[keep], stop[keep], *rest)


def band(strips: Strips, lo: int | Ints, hi: int | Ints) -> Columns:
    """Runs of `lo <= j - i <= hi`: a left edge, a body and a right edge per strip; one band, or one for each strip."""
    lo, hi = np.broadcast_to(lo, len(strips)), np.broadcast_to(hi, len(strips))
    left, left_end = strips.first + lo, strips.last + lo  # keys in left:left_end miss some rows' lower bound
    right, right_end = strips.first + hi + 1, strips.last + hi + 1  # keys in right:right_end, the upper bound
    narrow = left_end > right  # no key is in reach of every row: one run for all of it, cut by both bounds
    edges = np.stack([left, np.where(narrow, left, left_end), np.where(narrow, right_end, right), right_end], 1)
    free = np.full(len(strips), UNBOUNDED)
    lows = np.stack([lo, np.where(narrow, lo, -UNBOUNDED), -free], 1)
    highs = np.stack([free, np.where(narrow, hi, UNBOUNDED), hi], 1)
    states = np.stack([np.full(len(strips), BAND), np.where(narrow, BAND, ALL), np.full(len(strips), BAND)], 1)
    start = np.maximum(edges[:, :3], strips.key_first[:, None])
    stop = np.minimum(edges[:, 1:], strips.key_stop[:, None])
    strip, piece = np.nonzero((start < stop) & (lo <= hi)[:, None])
    return Columns(
        strip,
        start[strip, piece],
        stop[strip, piece],
        states[strip, piece].astype(np.uint8),
        lows[strip, piece],
        highs[strip, piece],
    )


def diagonals(strips: Strips, lo: Ints, hi: Ints) -> Columns:
    """Runs of `lo[n] <= j - i <= hi[n]` for any n; int64 [bands], rising and apart."""
    begin = np.searchsorted(hi, strips.key_first - strips.last, "left")
    end = np.searchsorted(lo, strips.key_stop - 1 - strips.first, "right")
    strip, rank = ragged(np.maximum(end - begin, 0))
    which = begin[strip] + rank
    runs = band(strips.take(strip), lo[which], hi[which])
    runs = replace(runs, strip=strip[runs.strip])
    return united(strips, runs, strips.height[runs.strip])


def covered(strips: Strips, strip: Ints, start: Ints, stop: Ints, rows: Ints) -> Columns:
    """Runs from intervals that hold for some rows each: `rows[n]` rows of `strip[n]` keep `start:stop`.

    A row's own intervals must be disjoint. Where the rows add up to the strip's height the state is
    ALL, elsewhere SOME. Any order.
    """
    start, stop, keep = cut(strips, strip, start, stop)
    rows = np.broadcast_to(rows, keep.shape)
    if not keep.all():
        strip, start, stop, rows = strip[keep], start[keep], stop[keep], rows[keep]
    key = _scale(strips).key(strip, start)
    order = order_of(key)
    key, strip, start, stop, rows = key[order], strip[order], start[order], stop[order], rows[order]
    # Intervals of units are often the same for several rows: they become one.
    same = (key[1:] == key[:-1]) & (stop[1:] == stop[:-1])
    if same.any():
        head = np.flatnonzero(np.r_[True, ~same])
        strip, start, stop, rows = strip[head], start[head], stop[head], np.add.reduceat(rows, head)
    free = np.full(len(strip), UNBOUNDED)
    return _united(strips, Columns(strip, start, stop, np.full(len(strip), ALL, np.uint8), -free, free), rows)


def united(strips: Strips, runs: Columns, rows: Ints) -> Columns:
    """The union of runs that may overlap, in any order; each speaks for `rows[n]` rows of its strip.

    Among runs that speak for less than the whole strip a row's own must be disjoint.
    """
    order = order_of(_scale(strips).key(runs.strip, runs.start))
    return _united(strips, runs.take(order), rows[order])


def _united(strips: Strips, runs: Columns, rows: Ints) -> Columns:
    """The same for runs in order."""
    height = strips.height
    state = np.where(rows == height[runs.strip], runs.state, SOME).astype(np.uint8)
    overlaps = np.flatnonzero((runs.start[1:] < runs.stop[:-1]) & (runs.strip[1:] == runs.strip[:-1]))
    if not len(overlaps):
        return _joined(_stated(runs, state))
    crossed = np.zeros(len(strips), bool)
    crossed[runs.strip[overlaps]] = True
    crossed = crossed[runs.strip]
    layered = _layered(runs.take(crossed), rows[crossed], height, _scale(strips))
    return _joined(sort(concatenate([_stated(runs.take(~crossed), state[~crossed]), layered])))


def _layered(runs: Columns, rows: Ints, height: Ints, scale: _Scale) -> Columns:
    """The union of runs that overlap, cut where any of them begins or ends."""
    at = np.concatenate([scale.key(runs.strip, runs.start), scale.key(runs.strip, runs.stop)])
    order = order_of(at)
    at = at[order]
    last = np.r_[at[1:] != at[:-1], True]
    at = at[last]

    def open_at(weight: Ints) -> Ints:
        return np.cumsum(np.concatenate([weight, -weight])[order])[last][:-1]

    count = open_at(np.ones_like(rows))
    held = count > 0
    count, filled = count[held], open_at(np.where(runs.state == ALL, rows, 0))[held]
    # Where one run is alone, the sum of the open runs' numbers is its number.
    run = np.where(count == 1, open_at(np.arange(len(runs)))[held], 0)
    strip, start = scale.place(at[:-1][held])
    alone = (count == 1) & (rows[run] == height[strip])
    state = np.where(filled >= height[strip], ALL, np.where(alone, runs.state[run], SOME)).astype(np.uint8)
    return _stated(replace(runs.take(run), strip=strip, start=start, stop=start + np.diff(at)[held]), state)


def _stated(columns: Columns, state: NDArray[np.uint8]) -> Columns:
    """The runs with states, free of bands where they are none any more."""
    lost = (columns.state == BAND) & (state != BAND)
    if not lost.any():
        return replace(columns, state=state)
    lo, hi = np.where(lost, -UNBOUNDED, columns.lo), np.where(lost, UNBOUNDED, columns.hi)
    return replace(columns, state=state, lo=lo, hi=hi)


def shifted(columns: Columns, keys: int | Ints, rows: int | Ints = 0) -> Columns:
    """Runs moved by `keys` along the keys when the strips were moved by `rows`."""
    bands = columns.state == BAND
    move = np.where(bands, keys - rows, 0)
    return replace(
        columns,
        start=columns.start + keys,
        stop=columns.stop + keys,
        lo=np.where(columns.lo > -UNBOUNDED, columns.lo + move, columns.lo),
        hi=np.where(columns.hi < UNBOUNDED, columns.hi + move, columns.hi),
    )


def sweep(strips: Strips, parts: Sequence[Columns], combine: Callable[..., Value]) -> Columns:
    """Combine the runs of several patterns: `combine` maps their values on each segment to one."""
    scale = _scale(strips)
    index = np.arange(len(strips))
    keys = [(scale.key(p.strip, p.start), scale.key(p.strip, p.stop)) for p in parts]
    ends = [scale.key(index, strips.key_first), scale.key(index, strips.key_stop)]
    cuts = _distinct(np.concatenate([*ends, *(k for pair in keys for k in pair)]))
    values = []
    for part, (start, stop) in zip(parts, keys, strict=True):
        if not len(part):
            none = np.zeros(max(len(cuts) - 1, 0), np.int64)
            values.append((none.astype(np.uint8), none, none))
            continue
        # All starts and stops are cuts: marking them there and adding up tells which run each segment is in.
        opened, closed = np.zeros(len(cuts), np.int8), np.zeros(len(cuts), np.int8)
        opened[np.searchsorted(cuts, start)] = 1
        closed[np.searchsorted(cuts, stop)] = 1
        run = np.maximum(np.cumsum(opened[:-1], dtype=np.int64) - 1, 0)
        inside = np.cumsum(opened - closed, dtype=np.int8)[:-1] > 0
        values.append((np.where(inside, part.state[run], NONE).astype(np.uint8), part.lo[run], part.hi[run]))
    state, lo, hi = combine(*values)
    keep = np.flatnonzero(state)
    strip, start = scale.place(cuts[keep])
    stop = start + cuts[keep + 1] - cuts[keep]
    found = Columns(strip, start, stop, state[keep], lo[keep], hi[keep])
    # What lies between one strip's keys and the next one's is nobody's.
    return _joined(_split_full(strips, found.take(start < strips.key_stop[strip])))


def _split_full(strips: Strips, columns: Columns) -> Columns:
    """Cut out of BAND runs the stretch that every row keeps: a union of bands can have one."""
    bands = np.flatnonzero(columns.state == BAND)
    part = columns.take(bands)
    low = np.clip(strips.last[part.strip] + part.lo, part.start, part.stop)
    high = np.clip(strips.first[part.strip] + part.hi + 1, part.start, part.stop)
    split = low < high
    if not split.any():
        return columns
    part, low, high = part.take(split), low[split], high[split]
    free = np.full(len(part), UNBOUNDED)
    whole = Columns(part.strip, low, high, np.full(len(part), ALL, np.uint8), -free, free)
    rest = np.ones(len(columns), bool)
    rest[bands[split]] = False
    pieces = [columns.take(rest), replace(part, stop=low), whole, replace(part, start=high)]
    return sort(concatenate([p.take(p.start < p.stop) for p in pieces]))


def concatenate(parts: Sequence[Columns]) -> Columns:
    """All runs of several Columns, in the order given."""
    fields = ("strip", "start", "stop", "state", "lo", "hi")
    return Columns(*(np.concatenate([getattr(p, f) for p in parts]) for f in fields))


def sort(columns: Columns) -> Columns:
    """The runs by (strip, start)."""
    base = int(columns.start.min(initial=0))
    return columns.take(order_of(columns.strip * (int(columns.start.max(initial=0)) - base + 1) + columns.start - base))


def _joined(columns: Columns) -> Columns:
    """Join neighbouring runs with one state and band."""
    c = columns
    after = np.flatnonzero((c.start[1:] == c.stop[:-1]) & (c.strip[1:] == c.strip[:-1])) + 1
    for field in (c.state, c.lo, c.hi):
        after = after[field[after] == field[after - 1]]
    if not len(after):
        return c
    head = np.ones(len(c), bool)
    head[after] = False
    heads = np.flatnonzero(head)
    return replace(c.take(heads), stop=c.stop[np.r_[heads[1:] - 1, len(c) - 1]])


def _distinct(values: Ints) -> Ints:
    values = np.sort(values, kind="stable")  # stable is a merge of the sorted lists that come in
    return values[np.r_[True, values[1:] != values[:-1]]] if len(values) else values


@dataclass(frozen=True)
class _Scale:
    """One integer axis for (strip, key position), so that one sort orders all strips."""

    base: int
    width: int

    def key(self, strip: Ints, position: Ints) -> Ints:
        return strip * self.width + (position - self.base)

    def place(self, key: Ints) -> tuple[Ints, Ints]:
        return key // self.width, key % self.width + self.base


def _scale(strips: Strips) -> _Scale:
    base = int(strips.key_first.min(initial=0))
    return _Scale(base, int(strips.key_stop.max(initial=0)) - base + 1)
