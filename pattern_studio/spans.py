"""Lists of positions: checked, kept as short as can be, and asked about by pattern primitives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .columns import ALL, SOME, Columns, Ints, Strips, intervals, ragged
from .errors import StudioError
from .problem import whole

MAX_ITEMS = 2**22  # entries of one list of positions


def positions(name: str, value: object) -> tuple[int | range, ...]:
    """Check a list of positions: whole numbers and ranges, kept sorted, apart and as short as can be."""
    items = (value,) if isinstance(value, range) else value
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise StudioError(f"{name} takes a tuple of whole numbers or ranges, such as (0, range(8, 12)); got {value!r}")
    if isinstance(items, (tuple, list)):
        numbers = [item for item in items if type(item) is int]
        if 0 < len(numbers) == len(items):
            return _numbers(name, numbers)
    single, stepped = [], []
    for item in items:
        if isinstance(item, range):
            if item.step < 1:
                raise StudioError(f"{name} takes rising ranges, got {item!r}")
            if len(item):
                whole(f"a position in {name}", item[-1], 0)
                whole(f"a position in {name}", item.start, 0)
                (single if item.step == 1 else stepped).append(item)
        else:
            n = whole(f"a position in {name}", item, 0)
            single.append(range(n, n + 1))
    _few_enough(name, len(single) + sum(map(len, stepped)))
    if len(stepped) == 1 and not single:
        return tuple(stepped)
    single += [range(n, n + 1) for r in stepped for n in r]
    merged: list[range] = []
    for r in sorted(single, key=lambda r: (r.start, r.stop)):
        if merged and r.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, r.stop))
        else:
            merged.append(r)
    return tuple(r.start if len(r) == 1 else r for r in merged)


def _numbers(name: str, items: Sequence[int]) -> tuple[int | range, ...]:
    """The same for whole numbers alone, thousands of which a row of a drawn layout has."""
    for end in (min(items), max(items)):
        whole(f"a position in {name}", end, 0)
    _few_enough(name, len(items))
    number = np.unique(np.array(items, np.int64))
    breaks = np.flatnonzero(np.diff(number) > 1) + 1
    starts, stops = number[np.r_[0, breaks]].tolist(), (number[np.r_[breaks - 1, -1]] + 1).tolist()
    return tuple(a if b == a + 1 else range(a, b) for a, b in zip(starts, stops, strict=True))


def _few_enough(name: str, count: int) -> None:
    if count > MAX_ITEMS:
        raise StudioError(f"{name} lists more than {MAX_ITEMS:,} positions; use ranges or a coarser pattern")


def spans(items: Sequence[int | range]) -> NDArray[np.int64]:
    """The half-open intervals [n, 2] of checked positions."""
    pairs = []
    for item in items:
        if isinstance(item, int):
            pairs.append((item, item + 1))
        elif item.step == 1:
            pairs.append((item.start, item.stop))
        else:
            pairs.extend((n, n + 1) for n in item)
    return np.array(pairs, np.int64).reshape(-1, 2)


def contains(intervals: NDArray[np.int64], position: Ints) -> NDArray[np.bool_]:
    """Whether each position lies in one of the sorted, disjoint half-open intervals."""
    if not len(intervals):
        return np.zeros(np.shape(position), bool)
    at = np.searchsorted(intervals[:, 0], position, "right") - 1
    return (at >= 0) & (position < intervals[np.maximum(at, 0), 1])


def rows_among(rows: NDArray[np.int64], strips: Strips) -> Columns:
    """Every key for the strips whose rows lie in the intervals."""
    begin = np.searchsorted(rows[:, 1], strips.first, "right")
    end = np.searchsorted(rows[:, 0], strips.last, "right")
    strip, rank = ragged(np.maximum(end - begin, 0))
    span = rows[begin[strip] + rank]
    count = np.minimum(span[:, 1], strips.last[strip] + 1) - np.maximum(span[:, 0], strips.first[strip])
    total = np.bincount(strip, count, len(strips)).astype(np.int64)
    some = np.flatnonzero(total)
    state = np.where(total[some] == strips.height[some], ALL, SOME)
    return intervals(strips, some, strips.key_first[some], strips.key_stop[some], state)


def keys_among(cols: NDArray[np.int64], strips: Strips) -> Columns:
    """The keys in the intervals, for every row."""
    begin = np.searchsorted(cols[:, 1], strips.key_first, "right")
    end = np.searchsorted(cols[:, 0], strips.key_stop, "left")
    strip, rank = ragged(np.maximum(end - begin, 0))
    span = cols[begin[strip] + rank]
    return intervals(strips, strip, span[:, 0], span[:, 1], ALL)


def seen(chosen: NDArray[np.int64], first: Ints, size: int) -> Ints:
    """What of the chosen intervals a stretch of `size` positions sees: none -1, all -2, else the place itself."""
    begin = np.searchsorted(chosen[:, 1], first, "right")
    end = np.searchsorted(chosen[:, 0], first + size, "left")
    if not len(chosen):
        return np.full(np.shape(first), -1)
    near = np.minimum(begin, len(chosen) - 1)
    whole = (chosen[near, 0] <= first) & (chosen[near, 1] >= first + size)
    shifted = first - int(np.min(first, initial=0))  # apart from the codes for none and all
    return np.where(end <= begin, -1, np.where(whole, -2, shifted))
