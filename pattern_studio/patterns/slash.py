"""slash: chosen diagonals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, diagonals
from ..leaf import Leaf
from ..spans import contains, positions, seen, spans


@dataclass(frozen=True)
class Slash(Leaf):
    """A query sees the keys at chosen distances before it: slanted lines of the attention map.

    Predicate: `i - j in offsets`, a tuple of distances and ranges, or one range; 0 is the query
    itself. For lines after the query take the transpose, `slash(offsets).T`.

    Source: MInference's vertical-slash heads (Jiang et al. 2024).

    >>> [j for j in range(12) if Slash((0, range(3, 5))).allows(10, j)]
    [6, 7, 10]
    """

    offsets: tuple[int | range, ...]
    name: ClassVar[str] = "slash"

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", positions("slash's offsets", self.offsets))

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return contains(spans(self.offsets), np.subtract(i, j))

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        offsets = spans(self.offsets)
        return diagonals(strips, 1 - offsets[::-1, 1], -offsets[::-1, 0])

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [seen(spans(self.offsets), row - key - shape[1] + 1, shape[0] + shape[1] - 1)]

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        offsets = spans(self.offsets)
        return diagonals(strips, offsets[:, 0], offsets[:, 1] - 1)


PATTERN = Slash
