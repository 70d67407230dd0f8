"""expander: a random graph in which every token has the same number of neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged
from ..errors import StudioError
from ..expr import Pattern
from ..leaf import BlockUnit, Leaf
from ..permutation import keyed, permuted, restored
from ..problem import whole


@dataclass(frozen=True)
class Expander(Leaf):
    """A random graph on all units of the problem in which each has `degree` neighbours: random regular, symmetric.

    Predicate: with the units `u = i // unit`, `v = j // unit`: `P(u) == v` or `P(v) == u` for one of
    `degree / 2` random permutations P of the units (keyed Feistel networks: bit-identical everywhere,
    no generator is touched). Neighbours that coincide count once, so a few units have less than
    `degree`. `unit=block` takes the query block of the lowering, on both sides.

    Source: Exphormer's expander graphs (Shirzad et al. 2023); Friedman 2003 for unions of permutations.

    >>> str(Expander(4, unit=64, seed=1))
    'expander(4, unit=64, seed=1)'
    """

    degree: int
    unit: int | BlockUnit = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    name: ClassVar[str] = "expander"
    reads_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check("degree", 2)
        if self.degree % 2:
            raise StudioError(f"expander's degree must be even (a permutation and its inverse), got {self.degree}")
        self.check("seed", 0, 2**63 - 1)
        if not isinstance(self.unit, BlockUnit):
            object.__setattr__(self, "unit", whole("expander's unit", self.unit, 1))

    def _size(self, scope: Scope) -> int:
        if not isinstance(self.unit, BlockUnit):
            return self.unit
        if scope.block is None:
            raise StudioError(f"{self} depends on the block size: lower it, or give the unit in tokens (unit=64)")
        return scope.block[0]

    def _kv_len(self, scope: Scope) -> Ints:
        if scope.kv_len is None:
            raise StudioError(f"{self} joins the keys of a problem: give allows() a Scope(kv_len=...)")
        return np.asarray(scope.kv_len)

    def _neighbours(self, own: Ints, kv_len: Ints, unit: int) -> Ints:
        """Neighbours of units that exist, sorted, those that coincide -1: int64 [units, degree]."""
        own, units = np.broadcast_arrays(own, -(-kv_len // unit))  # inside documents each can have the other's axis
        found = np.empty((*own.shape, self.degree), np.int64)
        for n in range(self.degree // 2):
            key = keyed(self.seed, np.full(own.shape, n))
            found[..., 2 * n] = permuted(own, key, units)
            found[..., 2 * n + 1] = restored(own, key, units)
        found.sort(-1)
        found[..., 1:][found[..., 1:] == found[..., :-1]] = -1
        return found

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        unit, kv_len = self._size(scope), self._kv_len(scope)
        valid = np.greater_equal(i, 0) & np.less(i, kv_len) & np.greater_equal(j, 0) & np.less(j, kv_len)
        near = self._neighbours(np.floor_divide(i, unit), kv_len, unit)
        other = np.floor_divide(j, unit)
        found = np.zeros(valid.shape, bool)
        for n in range(self.degree):
            found |= near[..., n] == other
        return found & valid

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        unit, kv_len = self._size(scope), np.broadcast_to(self._kv_len(scope), (len(strips),))
        first, last = np.maximum(strips.first, 0), np.minimum(strips.last, kv_len - 1)
        low, high = first // unit, last // unit
        piece, rank = ragged(np.where(first <= last, high - low + 1, 0))
        own = low[piece] + rank
        rows = np.minimum(last[piece] + 1, (own + 1) * unit) - np.maximum(first[piece], own * unit)
        near = self._neighbours(own, kv_len[piece], unit)
        owner, n = np.nonzero(near >= 0)
        other = near[owner, n]
        stop = np.minimum((other + 1) * unit, kv_len[piece[owner]])
        return covered(strips, piece[owner], other * unit, stop, rows[owner])

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [row, key, np.broadcast_to(self._kv_len(scope), np.shape(row))]

    def transposed(self) -> Pattern:
        return self


PATTERN = Expander
