"""vertical: chosen keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips
from ..leaf import Leaf
from ..spans import contains, keys_among, positions, rows_among, seen, spans


@dataclass(frozen=True)
class Vertical(Leaf):
    """Every query sees the keys `cols`: vertical lines of the attention map.

    Predicate: `j in cols`, a tuple of positions and ranges.

    Source: MInference's vertical-slash heads (Jiang et al. 2024).

    >>> str(Vertical((0, 1, 2, range(64, 96))))
    'vertical((range(0, 3), range(64, 96)))'
    """

    cols: tuple[int | range, ...]
    name: ClassVar[str] = "vertical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cols", positions("vertical's cols", self.cols))

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return contains(spans(self.cols), j) & np.equal(i, i)  # the shape of (i, j)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return keys_among(spans(self.cols), strips)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [seen(spans(self.cols), key, shape[1])]

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        return rows_among(spans(self.cols), strips)


PATTERN = Vertical
