"""strided: every n-th diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, BAND, SOME, UNBOUNDED, Columns, Ints, Scope, Strips, intervals, ragged, uniform
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Strided(Leaf):
    """A query sees the keys at whole multiples of `stride` from it, in both directions.

    Predicate: `(i - j) % stride == 0`; the query itself is one of them.

    Source: Sparse Transformer's strided attention (Child et al. 2019).

    >>> [j for j in range(10) if Strided(4).allows(6, j)]
    [2, 6]
    """

    stride: int
    name: ClassVar[str] = "strided"

    def __post_init__(self) -> None:
        self.check("stride", 1)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.subtract(i, j) % self.stride == 0

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        if self.stride == 1:
            return uniform(strips, ALL)
        # Rows first..last meet the keys first + t * stride .. last + t * stride; from `stride` rows on, every key.
        joined = strips.height >= self.stride
        low = -((strips.last - strips.key_first) // self.stride)
        high = (strips.key_stop - 1 - strips.first) // self.stride
        strip, rank = ragged(np.where(joined, 1, np.maximum(high - low + 1, 0)))
        move = (low[strip] + rank) * self.stride
        start = np.where(joined[strip], strips.key_first[strip], strips.first[strip] + move)
        stop = np.where(joined[strip], strips.key_stop[strip], strips.last[strip] + move + 1)
        state = np.where(joined[strip], SOME, np.where(strips.height[strip] == 1, ALL, BAND))
        band = state == BAND  # one diagonal by itself
        lo, hi = np.where(band, move, -UNBOUNDED), np.where(band, move, UNBOUNDED)
        return intervals(strips, strip, start, stop, state, lo, hi)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [(key - row) % self.stride]

    def transposed(self) -> Pattern:
        return self


PATTERN = Strided
