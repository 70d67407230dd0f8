"""sink: the first keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, Columns, Ints, Scope, Strips, intervals
from ..leaf import Leaf
from ..spans import rows_among


@dataclass(frozen=True)
class Sink(Leaf):
    """Every query sees the first `n` keys.

    Predicate: `0 <= j < n`.

    Source: StreamingLLM's attention sinks (Xiao et al. 2023).

    >>> Sink(4).allows(900, 3), Sink(4).allows(900, 4)
    (np.True_, np.False_)
    """

    n: int
    name: ClassVar[str] = "sink"

    def __post_init__(self) -> None:
        self.check("n", 0)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.greater_equal(j, 0) & np.less(j, self.n) & np.equal(i, i)  # the shape of (i, j)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        index = np.arange(len(strips))
        return intervals(strips, index, np.zeros_like(index), np.full_like(index, self.n), ALL)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [np.clip(key, -shape[1], 0), np.clip(self.n - key, 0, shape[1])]

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        return rows_among(np.array([[0, self.n]]), strips)


PATTERN = Sink
