"""butterfly: units whose numbers differ in one bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged
from ..errors import StudioError
from ..expr import Pattern
from ..leaf import BlockUnit, Leaf
from ..problem import whole

BITS = 31  # of a position


@dataclass(frozen=True)
class Butterfly(Leaf):
    """A query sees its own unit and those whose number differs from its own in one of the lowest `levels` bits.

    Predicate: `i // unit ^ j // unit` is 0 or `2 ** l` for an `l < levels`. In `levels` steps any of
    `2 ** levels` units reaches any other. `unit=block` takes the query block of the lowering, on both sides.

    Source: Pixelated Butterfly's flat block butterfly (Dao et al. 2022), whose maximum stride is `2 ** levels`.

    >>> [j for j in range(16) if Butterfly().allows(5, j)]
    [1, 4, 5, 7, 13]
    """

    unit: int | BlockUnit = field(default=1, kw_only=True)
    levels: int = field(default=BITS, kw_only=True)
    name: ClassVar[str] = "butterfly"

    def __post_init__(self) -> None:
        if not isinstance(self.unit, BlockUnit):
            object.__setattr__(self, "unit", whole("butterfly's unit", self.unit, 1))
        self.check("levels", 0, BITS)

    def _size(self, scope: Scope) -> int:
        if not isinstance(self.unit, BlockUnit):
            return self.unit
        if scope.block is None:
            raise StudioError(f"{self} depends on the block size: lower it, or give the unit in tokens (unit=64)")
        return scope.block[0]

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        unit = self._size(scope)
        differ = np.bitwise_xor(np.floor_divide(i, unit), np.floor_divide(j, unit))
        return (differ >= 0) & (differ < 1 << self.levels) & (differ & (differ - 1) == 0)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        unit = self._size(scope)
        low, high = strips.first // unit, strips.last // unit
        piece, rank = ragged(high - low + 1)
        own = low[piece] + rank
        rows = np.minimum(strips.last[piece] + 1, (own + 1) * unit) - np.maximum(strips.first[piece], own * unit)
        # Bits above those of any unit that is asked about lead outside.
        ends = np.concatenate([low, high, strips.key_first // unit, strips.key_stop // unit])
        levels = min(self.levels, int(np.abs(ends).max(initial=0)).bit_length() + 1)
        flips = np.r_[0, 1 << np.arange(levels)]
        other = (own[:, None] ^ flips).ravel()
        owner = np.repeat(np.arange(len(own)), len(flips))
        return covered(strips, piece[owner], other * unit, (other + 1) * unit, rows[owner])

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [row, key]

    def transposed(self) -> Pattern:
        return self


PATTERN = Butterfly
