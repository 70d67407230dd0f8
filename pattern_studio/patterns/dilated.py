"""dilated: a band with gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, BAND, SOME, UNBOUNDED, Columns, Ints, Scope, Strips, band, intervals, ragged
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Dilated(Leaf):
    """A query sees every `rate`-th key: `left` taps before it, itself and `right` taps after it.

    Predicate: `j = i + k * rate` for a whole `k` in `[-left, right]`, so `dilated(l, r, rate=1)` is
    `window(l, r)`. Taps beyond the sequence are cut off, never wrapped or clamped. An even number
    of taps needs no rule, since both sides are given.

    Source: Sparse Transformer (Child et al. 2019), Longformer's dilated windows (Beltagy et al. 2020).

    >>> [j for j in range(12) if Dilated(3, 0, rate=3).allows(10, j)]
    [1, 4, 7, 10]
    """

    left: int
    right: int
    rate: int = field(kw_only=True)
    name: ClassVar[str] = "dilated"

    def __post_init__(self) -> None:
        self.check("left", 0)
        self.check("right", 0)
        self.check("rate", 1)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        distance = np.subtract(j, i)
        reach = (distance >= -self.left * self.rate) & (distance <= self.right * self.rate)
        return reach & (distance % self.rate == 0)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        if self.rate == 1:
            return band(strips, -self.left, self.right)
        # Rows first..last meet the keys first + tap .. last + tap; from `rate` rows on the taps leave no gap.
        joined = strips.height >= self.rate
        low = np.maximum(-self.left, -((strips.last - strips.key_first) // self.rate))
        high = np.minimum(self.right, (strips.key_stop - 1 - strips.first) // self.rate)
        strip, rank = ragged(np.where(joined, 1, np.maximum(high - low + 1, 0)))
        tap = (low[strip] + rank) * self.rate
        start = strips.first[strip] + np.where(joined[strip], -self.left * self.rate, tap)
        stop = strips.last[strip] + np.where(joined[strip], self.right * self.rate, tap) + 1
        state = np.where(joined[strip], SOME, np.where(strips.height[strip] == 1, ALL, BAND))
        alone = state == BAND  # one diagonal by itself
        lo, hi = np.where(alone, tap, -UNBOUNDED), np.where(alone, tap, UNBOUNDED)
        return intervals(strips, strip, start, stop, state, lo, hi)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [np.clip(key - row, -self.left * self.rate - shape[1], self.right * self.rate + shape[0])]

    def transposed(self) -> Pattern:
        return Dilated(self.right, self.left, rate=self.rate)


PATTERN = Dilated
