"""prefix: keys that the whole sequence may look back, or ahead, to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips
from ..leaf import Leaf
from ..spans import keys_among, rows_among


@dataclass(frozen=True)
class Prefix(Leaf):
    """Every query sees the first `n` keys, so those see each other in both directions.

    Predicate: `0 <= j < n`. `causal | prefix(n)` is a prefix language model. Alone it keeps the
    pairs of `sink(n)`; the word says what they are for.

    Source: T5's prefix LM (Raffel et al. 2020), UniLM (Dong et al. 2019).

    >>> import pattern_studio as ps
    >>> ps.lower(ps.causal | Prefix(3), q_len=5, block=1).group_row_counts.tolist()
    [[3, 3, 3, 4, 5]]
    """

    n: int
    name: ClassVar[str] = "prefix"

    def __post_init__(self) -> None:
        self.check("n", 0)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.greater_equal(j, 0) & np.less(j, self.n) & np.equal(i, i)  # the shape of (i, j)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return keys_among(np.array([[0, self.n]]), strips)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [np.clip(key, -shape[1], 0), np.clip(self.n - key, 0, shape[1])]

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        return rows_among(np.array([[0, self.n]]), strips)


PATTERN = Prefix
