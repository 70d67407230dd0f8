"""Reach: which coordinates a query sees along one dimension of a grid, as a table of intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .columns import Ints


@dataclass(frozen=True, eq=False)
class Reach:
    """A query at coordinate `q` sees `low[q], low[q] + step, ..., high[q]`, every one congruent to q modulo step.

    low, high: int64 [size], never falling along queries that are congruent modulo step; nobody's
    interval is empty.
    """

    low: Ints
    high: Ints
    step: int = 1

    def holds(self, query: Ints, key: Ints) -> NDArray[np.bool_]:
        """Whether the query sees the key; coordinates of cells, broadcast."""
        seen = (key >= self.low[query]) & (key <= self.high[query])
        return seen if self.step == 1 else seen & ((key - query) % self.step == 0)

    def span(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """An interval that holds whatever the queries `first..last` see; exact for one query and for step 1."""
        floor, ceiling = self._bounds
        one = first == last
        return np.where(one, self.low[first], floor[first]), np.where(one, self.high[last], ceiling[last])

    def core(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """What all of the queries `first..last` see: an interval, empty where its low is above its high."""
        return self.low[last], np.where((first < last) & (self.step > 1), -1, self.high[first])

    def even(self, first: Ints, last: Ints) -> NDArray[np.bool_]:
        """Whether both ends move along with the queries `first..last`."""
        return self._bends[first] == self._bends[last]

    @cached_property
    def _bends(self) -> Ints:
        """How often, up to each query, an end did not move along."""
        return np.cumsum(np.r_[False, (np.diff(self.low) != 1) | (np.diff(self.high) != 1)])

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        """The lowest coordinate seen from q on, and the highest seen up to q."""
        return np.minimum.accumulate(self.low[::-1])[::-1], np.maximum.accumulate(self.high)

    @cached_property
    def inverse(self) -> Reach:
        """Reach with query and key exchanged."""
        size, step = len(self.low), self.step
        # Queries class by class, so that within a class both ends rise and one search finds them.
        query = np.concatenate([np.arange(c, size, step) for c in range(min(step, size))])
        base = query % step * (size + 1)
        first = np.searchsorted(base + self.high[query], base + query, "left")
        last = np.searchsorted(base + self.low[query], base + query, "right") - 1
        low, high = np.empty_like(query), np.empty_like(query)
        low[query], high[query] = query[first], query[last]
        return Reach(low, high, step)

    def codes(self, first: Ints, last: Ints, key_first: Ints, key_last: Ints) -> tuple[Ints, Ints, Ints]:
        """Integers per rectangle: equal codes, and equal sizes, have equal parts of the relation.

        The first code is 0 where no query sees a key, 1 where each sees every key.
        """
        low, high = self.span(first, last)
        none = (low > key_last) | (high < key_first)
        all_low, all_high = self.core(first, last)
        every = (all_low <= key_first) & (all_high >= key_last) & (self.step == 1)
        # Where all queries see the same, only where that lies in the keys counts.
        same = (self.low[first] == self.low[last]) & (self.high[first] == self.high[last]) & (self.step == 1)
        length = key_last - key_first + 1
        left, right = np.clip(low - key_first, 0, length), np.clip(high - key_first, -1, length)
        # Else the way both ends move with the query, told by two stretches that cover first..last.
        power = np.frexp(last - first + 1)[1] - 1
        start, end = (self._moves(power, at) for at in (first, last + 1 - (1 << power)))
        kind = np.select([none, every, same], [0, 1, 2], 3 + start)
        second = np.select([none | every, same], [0, left], end)
        return kind, second, np.select([none | every, same], [0, right], key_first - first)

    def _moves(self, power: Ints, at: Ints) -> Ints:
        """The class of each stretch of `2 ** power` queries from `at`: equal where all low - q and high - q are."""
        size, levels = len(self.low), self._levels
        for done in range(len(levels), int(power.max(initial=0)) + 1):  # by doubling
            level, half = levels[-1], min(1 << (done - 1), size)
            after = np.concatenate([level[half:], np.full(half, -1)])
            levels.append(np.unique(level * (size + 1) + after, return_inverse=True)[1])
        return np.stack(levels)[power, at]

    @cached_property
    def _levels(self) -> list[Ints]:
        """Classes of stretches of 1, 2, 4, ... queries, as far as they were asked for."""
        query = np.arange(len(self.low))
        ends = np.stack([self.low - query, self.high - query], 1)
        return [np.unique(ends, axis=0, return_inverse=True)[1].reshape(-1)]
