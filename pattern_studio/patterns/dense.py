"""dense: every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, Columns, Ints, Scope, Strips, uniform
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Dense(Leaf):
    """Every query sees every key: full attention.

    Predicate: true.

    >>> str(Dense())
    'dense'
    """

    name: ClassVar[str] = "dense"

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.ones(np.broadcast_shapes(np.shape(i), np.shape(j)), bool)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return uniform(strips, ALL)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return []

    def transposed(self) -> Pattern:
        return self


PATTERN = Dense()
