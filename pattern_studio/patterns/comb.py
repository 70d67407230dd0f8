"""comb: the same keys of every period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, NONE, SOME, Columns, Ints, Scope, Strips, intervals, ragged, uniform
from ..errors import StudioError
from ..leaf import Leaf
from ..spans import contains, positions, spans


@dataclass(frozen=True)
class Comb(Leaf):
    """Every query sees the keys that stand at chosen places of their period: columns that repeat.

    Predicate: `j % period in places`, a tuple of positions below `period` and ranges.

    Source: the summary columns of the Sparse Transformer's fixed attention (Child et al. 2019).

    >>> [j for j in range(12) if Comb(5, (3, 4)).allows(0, j)]
    [3, 4, 8, 9]
    """

    period: int
    places: tuple[int | range, ...]
    name: ClassVar[str] = "comb"

    def __post_init__(self) -> None:
        self.check("period", 1)
        object.__setattr__(self, "places", positions("comb's places", self.places))
        end = spans(self.places)[-1, 1] if self.places else 0
        if end > self.period:
            raise StudioError(f"comb's places must lie below its period {self.period}, got {end - 1}")

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return contains(spans(self.places), np.asarray(j) % self.period) & np.equal(i, i)  # the shape of (i, j)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        places = spans(self.places)
        if not len(places):
            return uniform(strips, NONE)
        first, last = strips.key_first // self.period, (strips.key_stop - 1) // self.period
        # A tile that holds a whole period holds a chosen key: there a stretch does for its keys.
        coarse = self.period <= (scope.block or (1, 1))[1]
        coarse = (strips.height > 1) & coarse & (places[0, 1] - places[0, 0] < self.period)
        count = np.where(coarse, 1, len(places) * (last - first + 1))
        strip, rank = ragged(np.where(strips.key_first < strips.key_stop, count, 0))
        turn, place = np.divmod(rank, len(places))
        base = (first[strip] + turn) * self.period
        start = base + np.where(coarse[strip], places[0, 0], places[place, 0])
        stop = np.where(coarse[strip], last[strip] * self.period + places[-1, 1], base + places[place, 1])
        return intervals(strips, strip, start, stop, np.where(coarse[strip], SOME, ALL))

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [key % self.period]

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        chosen = self._before(strips.last + 1) - self._before(strips.first)
        strip = np.flatnonzero(chosen)
        state = np.where(chosen[strip] == strips.height[strip], ALL, SOME)
        return intervals(strips, strip, strips.key_first[strip], strips.key_stop[strip], state)

    def _before(self, position: Ints) -> Ints:
        """How many chosen positions lie before each, counted from 0 in both directions."""
        places = np.concatenate([[[0, 0]], spans(self.places)])
        length = places[:, 1] - places[:, 0]
        turn, place = np.divmod(position, self.period)
        at = np.searchsorted(places[:, 0], place, "right") - 1
        inside = (np.cumsum(length) - length)[at] + np.minimum(place - places[at, 0], length[at])
        return turn * length.sum() + inside


PATTERN = Comb
