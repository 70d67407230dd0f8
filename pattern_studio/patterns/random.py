"""random: keys drawn at random, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged
from ..errors import StudioError
from ..leaf import BlockUnit, Leaf
from ..permutation import keyed, permuted
from ..problem import whole


@dataclass(frozen=True)
class Random(Leaf):
    """Every query sees `k` distinct keys, drawn without replacement from all keys of the problem.

    With `unit=u` the draw is made once for each `u` queries, among blocks of `u` keys;
    `unit=block` takes the block size of the lowering. With `past=True` a query draws among the
    keys up to itself (its own unit included), so under `causal` nothing is lost. Where there are
    fewer than `k` candidates, all are taken.

    Predicate: `rank(seed, i // u, j // u) < k`, where `rank` is a keyed permutation of the
    candidates (a Feistel network over 64-bit integer hashes): no generator is touched, the draw
    is bit-identical everywhere, and the keys of a smaller `k` are among those of a larger one.

    Source: BigBird (Zaheer et al. 2020) for the pattern; Black and Rogaway 2002 for the permutation.

    >>> str(Random(3, unit=64, seed=7))
    'random(3, unit=64, seed=7)'
    """

    k: int
    unit: int | BlockUnit = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    past: bool = field(default=False, kw_only=True)
    name: ClassVar[str] = "random"
    reads_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check("k", 0)
        self.check("seed", 0, 2**63 - 1)
        if not isinstance(self.unit, BlockUnit):
            object.__setattr__(self, "unit", whole("random's unit", self.unit, 1))
        if not isinstance(self.past, bool):
            raise StudioError(f"random's past must be True or False, got {self.past!r}")

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        unit_q, unit_k = self._units(scope)
        row, key = np.floor_divide(i, unit_q), np.floor_divide(j, unit_k)
        candidates = self._candidates(row, scope)
        result = np.zeros(np.broadcast_shapes(np.shape(row), np.shape(key)), bool)
        for rank in range(min(self.k, int(np.max(candidates, initial=0)))):
            result |= _draw(row, rank, candidates, self.seed) == key
        # The last unit can reach past the keys of a document: what is drawn there is no key.
        return result & (np.greater_equal(j, 0) & np.less(j, self._kv_len(scope)))

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        unit_q, unit_k = self._units(scope)
        low, high = strips.first // unit_q, strips.last // unit_q
        piece, rank = ragged(high - low + 1)
        row = low[piece] + rank
        rows = np.minimum(strips.last[piece] + 1, (row + 1) * unit_q) - np.maximum(strips.first[piece], row * unit_q)
        candidates = self._candidates(row, scope.at(piece))
        owner, rank = ragged(np.clip(candidates, 0, self.k))
        drawn = permuted(rank, keyed(self.seed, row)[owner], candidates[owner])
        kv_len = np.broadcast_to(np.asarray(self._kv_len(scope)), (len(strips),))[piece[owner]]
        stop = np.minimum((drawn + 1) * unit_k, kv_len)
        return covered(strips, piece[owner], drawn * unit_k, stop, rows[owner])

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        kv_len = self._kv_len(scope)
        if isinstance(kv_len, np.ndarray) or not len(strips):
            return super().transposed_columns(strips, scope)
        unit_q, unit_k = self._units(scope)
        # All draws of the problem, kept for the next strips; queries outside it only as they are asked for.
        low = min(int(strips.key_first.min()), 0) // unit_q
        high = (max(int(strips.key_stop.max()), kv_len) - 1) // unit_q
        drawn, row = _draws(self, kv_len, (unit_q, unit_k), low, high)
        first, last = np.maximum(strips.first, 0), np.minimum(strips.last, kv_len - 1)
        piece, rank = ragged(np.where(first <= last, last // unit_k - first // unit_k + 1, 0))
        own = first[piece] // unit_k + rank
        rows = np.minimum(last[piece] + 1, (own + 1) * unit_k) - np.maximum(first[piece], own * unit_k)
        begin, end = np.searchsorted(drawn, own, "left"), np.searchsorted(drawn, own, "right")
        owner, rank = ragged(end - begin)
        start = row[begin[owner] + rank].astype(np.int64) * unit_q
        return covered(strips, piece[owner], start, start + unit_q, rows[owner])

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [row, key, np.broadcast_to(np.asarray(self._kv_len(scope)), np.shape(row))]

    def _units(self, scope: Scope) -> tuple[int, int]:
        if not isinstance(self.unit, BlockUnit):
            return self.unit, self.unit
        if scope.block is None:
            raise StudioError(f"{self} depends on the block size: lower it, or give the unit in tokens (unit=64)")
        return scope.block

    def _kv_len(self, scope: Scope) -> int | Ints:
        if scope.kv_len is None:
            raise StudioError(f"{self} draws among the keys of a problem: give allows() a Scope(kv_len=...)")
        return scope.kv_len

    def _candidates(self, row: Ints, scope: Scope) -> Ints:
        available = -(-np.asarray(self._kv_len(scope)) // self._units(scope)[1])
        if self.past:
            unit_q, unit_k = self._units(scope)
            available = np.minimum(available, ((row + 1) * unit_q - 1) // unit_k + 1)
        return np.maximum(np.broadcast_arrays(available, row)[0], 0)  # inside documents both can have the other's axis


@lru_cache(maxsize=1)
def _draws(
    pattern: Random, kv_len: int, units: tuple[int, int], low: int, high: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every draw of the query units `low..high`, sorted by the key unit: key unit and query unit."""
    row = np.arange(low, high + 1)
    candidates = pattern._candidates(row, Scope(kv_len, None, units))
    owner, rank = ragged(np.clip(candidates, 0, pattern.k))
    drawn = permuted(rank, keyed(pattern.seed, row)[owner], candidates[owner])
    order = np.argsort(drawn, kind="stable")
    return drawn[order].astype(np.int32), row[owner][order].astype(np.int32)


def _draw(row: Ints, rank: int | Ints, candidates: Ints, seed: int) -> Ints:
    """The candidate with this rank in this row's permutation of [0, candidates); -1 where there is none."""
    row, rank, candidates = np.broadcast_arrays(row, rank, candidates)
    return np.where(rank < candidates, permuted(rank, keyed(seed, row), candidates), -1)


PATTERN = Random
