"""hierarchical: near keys one by one, far keys ever more thinly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from reprlib import repr
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, BAND, SOME, UNBOUNDED, Columns, Ints, Scope, Strips, band, intervals, ragged, sweep
from ..errors import StudioError
from ..kleene import either
from ..leaf import Leaf
from ..problem import whole

MAX_LEVELS = 64  # each one is a pattern of its own


@dataclass(frozen=True)
class Hierarchical(Leaf):
    """Keys near the query are all seen, further ones are represented by every r-th key: levels of (reach, rate).

    Predicate: for one level `(n, r)`: `|i - j| < n` and `j % r == 0`. With rates that divide each
    other, such as `((64, 1), (512, 8), (4096, 64))`, every level thins out the one before.

    Source: the multi-resolution layout of H-Transformer-1D (Zhu and Soricut 2021), with a key for
    each group in the place of its average.

    >>> [j for j in range(17) if Hierarchical(((2, 1), (7, 4))).allows(9, j)]
    [4, 8, 9, 10, 12]
    """

    levels: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "hierarchical"

    def __post_init__(self) -> None:
        given = self.levels
        if not isinstance(given, (tuple, list)) or not all(isinstance(v, (tuple, list)) and len(v) == 2 for v in given):
            raise StudioError(
                f"hierarchical takes levels of (reach, rate), such as ((64, 1), (512, 8)); got {repr(given)}"
            )
        if not 1 <= len(given) <= MAX_LEVELS:
            raise StudioError(f"hierarchical takes 1 to {MAX_LEVELS} levels, got {len(given)}")
        checked = tuple(
            (whole("a reach of hierarchical", n, 1), whole("a rate of hierarchical", r, 1)) for n, r in given
        )
        object.__setattr__(self, "levels", checked)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        distance = np.abs(np.subtract(i, j))
        return reduce(np.logical_or, ((distance < n) & (np.asarray(j) % r == 0) for n, r in self.levels))

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return self._union(strips, [self._level(strips, scope, n, r) for n, r in self.levels])

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        return self._union(strips, [self._level_transposed(strips, n, r) for n, r in self.levels])

    def _union(self, strips: Strips, parts: list[Columns]) -> Columns:
        return parts[0] if len(parts) == 1 else sweep(strips, parts, lambda *values: reduce(either, values))

    def _level(self, strips: Strips, scope: Scope, n: int, r: int) -> Columns:
        if r == 1:
            return band(strips, 1 - n, n - 1)
        one = -(-np.maximum(strips.first - n + 1, strips.key_first) // r)
        end = np.minimum(strips.last + n - 1, strips.key_stop - 1) // r
        # A tile that r is smaller than holds a chosen key anyway: there a stretch does for its keys.
        coarse = (strips.height > 1) & (r <= (scope.block or (1, 1))[1])
        strip, rank = ragged(np.where(end < one, 0, np.where(coarse, 1, end - one + 1)))
        start = (one[strip] + rank) * r
        stop = np.where(coarse[strip], end[strip] * r, start) + 1
        everyone = (start >= strips.last[strip] - n + 1) & (stop - 1 <= strips.first[strip] + n - 1)
        state = np.where(stop - start > 1, SOME, np.where(everyone, ALL, BAND))
        edge = np.where(state == BAND, n - 1, UNBOUNDED)
        return intervals(strips, strip, start, stop, state, -edge, edge)

    def _level_transposed(self, strips: Strips, n: int, r: int) -> Columns:
        if r == 1:
            return band(strips, 1 - n, n - 1)
        first, last = -(-strips.first // r) * r, strips.last // r * r
        strip = np.flatnonzero(first <= last)
        state = np.where(strips.height[strip] == 1, ALL, SOME)
        return intervals(strips, strip, first[strip] - n + 1, last[strip] + n, state)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        parts = []
        for n, r in self.levels:
            way = np.clip(key - row, -n - shape[1], n + shape[0])
            beyond = (way + shape[1] <= 1 - n) | (way - shape[0] + 1 >= n)
            inside = (way - shape[0] + 1 > -n) & (way + shape[1] - 1 < n)
            parts += [np.where(beyond, -1, key % r), np.where(beyond | inside, n + shape[0] + 1, way)]
        return parts


PATTERN = Hierarchical
