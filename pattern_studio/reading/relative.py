"""Patterns that depend on j - i only, from the diagonals that must and must not be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expr import Pattern
from ..patterns import PRIMITIVES

CAUSAL, chunk, dilated, slash, strided, window = (
    PRIMITIVES[word] for word in ("causal", "chunk", "dilated", "slash", "strided", "window")
)
MOST = 64  # stretches of diagonals in one pattern; beyond it a list of blocks says as much
Ints = NDArray[Any]


def relative(kept: Ints, dropped: Ints, unit: int, causal: bool) -> Iterator[Pattern]:
    """Patterns with the `kept` diagonals and none of the `dropped`, simplest first; others are free.

    Diagonals, sorted, count cells of `unit` tokens. Inside `causal`, keys after the query are free too.
    """
    if not len(kept):
        return
    if not _between(dropped, int(kept[0]), int(kept[-1])):
        yield _band(kept, dropped, unit, causal)
        return
    if not _between(kept, int(dropped[0]), int(dropped[-1])):
        yield ~_band(dropped, kept, unit, causal)
    if unit == 1:
        yield from _comb(kept, dropped)
        yield from (~comb for comb in _comb(dropped, kept))
        yield from _window_and_comb(kept, dropped)
        runs = _runs(kept, dropped)
        if len(runs) <= MOST:
            yield _listed(runs)


def _band(kept: Ints, dropped: Ints, unit: int, causal: bool) -> Pattern:
    """The diagonals from the first to the last one kept; a side on which nothing is dropped is left open."""
    low, high = int(kept[0]), int(kept[-1])
    # Of tiles, those up to the query's own: the rest of the diagonal tile belongs to it.
    past = CAUSAL if unit == 1 else CAUSAL | chunk(unit)
    if not (dropped < low).any() and not (causal and high == 0):
        return _moved(past, high * unit)
    if not (dropped > high).any() and not causal:
        return _moved(past.T, low * unit)
    if unit == 1:
        return _listed([(low, high)])
    if low == high:
        return _moved(chunk(unit), low * unit)
    return _moved(past, high * unit) - _moved(past, (low - 1) * unit)


def _comb(kept: Ints, dropped: Ints) -> Iterator[Pattern]:
    """Every rate-th diagonal, if the kept ones are evenly spaced and none in between is dropped."""
    rate = int(np.gcd.reduce(np.diff(kept))) if len(kept) > 1 else 0
    if rate < 2:
        return
    same = dropped[(dropped - kept[0]) % rate == 0]
    low, high = int(kept[0]), int(kept[-1])
    if _between(same, low, high):
        return
    middle = int(kept[np.abs(kept).argmin()])
    if not len(same):
        yield _moved(strided(rate), middle % rate)
    yield _moved(dilated((middle - low) // rate, (high - middle) // rate, rate=rate), middle)


def _window_and_comb(kept: Ints, dropped: Ints) -> Iterator[Pattern]:
    """A window around the query, and every rate-th diagonal beyond it."""
    low, high = next((run for run in _runs(kept, dropped) if run[0] <= 0 <= run[1]), (1, 0))
    far = kept[(kept < low) | (kept > high)]
    if low <= high and len(far):
        yield from (window(-low, high) | comb for comb in _comb(np.union1d(far, [0]), dropped))


def _listed(runs: list[tuple[int, int]]) -> Pattern:
    """Stretches of diagonals: a window around the query, slashes before it, and after it."""
    around = [window(-low, high) for low, high in runs if low <= 0 <= high]
    before = tuple(range(-high, 1 - low) for low, high in runs if high < 0)
    after = tuple(range(low, high + 1) for low, high in runs if low > 0)
    parts = [*around, *([slash(before)] if before else []), *([slash(after).T] if after else [])]
    result = parts[0]
    for part in parts[1:]:
        result = result | part
    return result


def _runs(kept: Ints, dropped: Ints) -> list[tuple[int, int]]:
    """Kept diagonals in stretches, first and last, without a dropped one in between."""
    cuts = np.searchsorted(dropped, kept)
    first = np.flatnonzero(np.r_[True, cuts[1:] != cuts[:-1]])
    return list(zip(kept[first].tolist(), kept[np.r_[first[1:], len(kept)] - 1].tolist(), strict=True))


def _moved(pattern: Pattern, keys: int) -> Pattern:
    return pattern >> keys if keys else pattern


def _between(values: Ints, low: int, high: int) -> bool:
    return bool(((values >= low) & (values <= high)).any())
