"""rect: one rectangle of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, SOME, Columns, Ints, Scope, Strips, intervals
from ..errors import StudioError
from ..expr import Pattern
from ..leaf import Leaf
from ..problem import whole


@dataclass(frozen=True)
class Rect(Leaf):
    """The queries of one range see the keys of another.

    Predicate: `i in rows and j in cols`. In text `rect(0:128, 0:256)` is short for
    `rect(range(0, 128), range(0, 256))`.

    >>> str(Rect(range(0, 128), range(0, 256)))
    'rect(range(0, 128), range(0, 256))'
    """

    rows: range
    cols: range
    name: ClassVar[str] = "rect"

    def __post_init__(self) -> None:
        for side in ("rows", "cols"):
            value = getattr(self, side)
            if not isinstance(value, range) or value.step != 1:
                raise StudioError(f"rect's {side} must be a range such as range(0, 128), got {value!r}")
            whole(f"rect's first of {side}", value.start, 0)
            whole(f"rect's end of {side}", value.stop, 0)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        rows = np.greater_equal(i, self.rows.start) & np.less(i, self.rows.stop)
        return rows & np.greater_equal(j, self.cols.start) & np.less(j, self.cols.stop)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        met = np.minimum(strips.last + 1, self.rows.stop) - np.maximum(strips.first, self.rows.start)
        strip = np.flatnonzero(met > 0)
        state = np.where(met[strip] == strips.height[strip], ALL, SOME)
        start, stop = np.full_like(strip, self.cols.start), np.full_like(strip, self.cols.stop)
        return intervals(strips, strip, start, stop, state)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [
            np.clip(edge - corner, 0, size)
            for side, corner, size in ((self.rows, row, shape[0]), (self.cols, key, shape[1]))
            for edge in (side.start, side.stop)
        ]

    def transposed(self) -> Pattern:
        return Rect(self.cols, self.rows)


PATTERN = Rect
