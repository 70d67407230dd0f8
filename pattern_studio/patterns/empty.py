"""empty: no pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import NONE, Columns, Ints, Scope, Strips, uniform
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Empty(Leaf):
    """No query sees any key. Useful as the start of a union or for switched-off heads.

    Predicate: false.

    >>> str(Empty())
    'empty'
    """

    name: ClassVar[str] = "empty"

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.zeros(np.broadcast_shapes(np.shape(i), np.shape(j)), bool)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return uniform(strips, NONE)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return []

    def transposed(self) -> Pattern:
        return self


PATTERN = Empty()
