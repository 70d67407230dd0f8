"""globals: whole rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, sweep
from ..expr import Pattern
from ..kleene import either
from ..leaf import Leaf
from ..spans import contains, keys_among, positions, rows_among, seen, spans


@dataclass(frozen=True)
class Globals(Leaf):
    """Chosen queries see every key, and every query sees chosen keys.

    Predicate: `i in rows or j in cols`. Rows and columns are tuples of positions and ranges.

    Source: Longformer's global attention (Beltagy et al. 2020), BigBird (Zaheer et al. 2020).

    >>> str(Globals(rows=(0, 1, 2), cols=(range(0, 3), 7)))
    'globals(rows=(range(0, 3),), cols=(range(0, 3), 7))'
    """

    rows: tuple[int | range, ...] = field(default=(), kw_only=True)
    cols: tuple[int | range, ...] = field(default=(), kw_only=True)
    name: ClassVar[str] = "globals"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", positions("globals' rows", self.rows))
        object.__setattr__(self, "cols", positions("globals' cols", self.cols))

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.logical_or(contains(spans(self.rows), i), contains(spans(self.cols), j))

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return sweep(strips, [rows_among(spans(self.rows), strips), keys_among(spans(self.cols), strips)], either)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [seen(spans(self.rows), row, shape[0]), seen(spans(self.cols), key, shape[1])]

    def transposed(self) -> Pattern:
        return Globals(rows=self.cols, cols=self.rows)


PATTERN = Globals
