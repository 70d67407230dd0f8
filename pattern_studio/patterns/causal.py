"""causal: no key after the query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, band
from ..layout import UNBOUNDED
from ..leaf import Leaf


@dataclass(frozen=True)
class Causal(Leaf):
    """A query sees itself and what came before, decided on positions.

    Predicate: `j <= i`.

    >>> str(Causal())
    'causal'
    """

    name: ClassVar[str] = "causal"

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.less_equal(j, i)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return band(strips, -UNBOUNDED, 0)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [np.clip(key - row, -shape[1], shape[0])]

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        return band(strips, 0, UNBOUNDED)


PATTERN = Causal()
