"""random: keys drawn at random, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged
from ..errors import StudioError
from ..leaf import BlockUnit, Leaf
from ..problem import whole

ROUNDS = 4  # of the Feistel network: its draws need to look random, not to keep secrets


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
        drawn = _draw(row[owner], rank, candidates[owner], self.seed)
        kv_len = np.broadcast_to(np.asarray(self._kv_len(scope)), (len(strips),))[piece[owner]]
        stop = np.minimum((drawn + 1) * unit_k, kv_len)
        return covered(strips, piece[owner], drawn * unit_k, stop, rows[owner])

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
        return np.maximum(np.broadcast_to(available, np.shape(row)), 0)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit finaliser that spreads every bit (the constants of Stafford's Mix13, as in SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _draw(row: Ints, rank: int | Ints, candidates: Ints, seed: int) -> Ints:
    """The candidate with this rank in this row's permutation of [0, candidates); -1 where there is none."""
    row, rank, candidates = (np.ascontiguousarray(a, np.int64) for a in np.broadcast_arrays(row, rank, candidates))
    exists = rank < candidates
    half = np.maximum((np.frexp(np.maximum(candidates - 1, 1).astype(float))[1] + 1) // 2, 1).astype(np.uint64)
    mask = (np.uint64(1) << half) - np.uint64(1)
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        golden = np.uint64(0x9E3779B97F4A7C15)
        key = _mix(row.astype(np.uint64) * golden + _mix(np.full(row.shape, seed + 1, np.uint64) * golden))
        value = np.where(exists, rank, 0).astype(np.uint64)
        open_ = np.flatnonzero(exists)  # cycle walking: permute again until the value is a candidate
        flat, keys, halves, masks = value.ravel(), key.ravel(), half.ravel(), mask.ravel()
        limit = candidates.ravel().astype(np.uint64)
        while len(open_):
            v, k, h, m = flat[open_], keys[open_], halves[open_], masks[open_]
            left, right = v >> h, v & m
            for turn in range(ROUNDS):
                left, right = right, left ^ (_mix(k + right * golden + np.uint64(turn)) & m)
            flat[open_] = (left << h) | right
            open_ = open_[flat[open_] >= limit[open_]]
    return np.where(exists, flat.reshape(row.shape).astype(np.int64), -1)


PATTERN = Random
