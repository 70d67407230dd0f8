"""Partition: which rank holds which tokens, and the three ways of dealing them out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pattern_studio.errors import StudioError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Tokens of one sequence over ranks, in units of neighbouring tokens (the last unit may be ragged).

    `owner` is int64 [units]. A rank keeps its units in ascending order of position, one after
    another, so its shard of a tensor is `x[..., partition.positions(rank), :]`.
    """

    length: int
    unit: int
    owner: Ints
    ranks: int

    def units(self, rank: int) -> Ints:
        """The units of a rank, ascending, int64."""
        return np.flatnonzero(self.owner == rank)

    def positions(self, rank: int) -> Ints:
        """The global row of each local row of a rank, ascending, int64."""
        rows = (self.units(rank)[:, None] * self.unit + np.arange(self.unit)).ravel()
        return rows[rows < self.length]

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each rank, int64 [ranks]."""
        sizes = np.full(len(self.owner), self.unit)
        if len(sizes):
            sizes[-1] = self.length - self.unit * (len(sizes) - 1)
        return np.bincount(self.owner, sizes, self.ranks).astype(np.int64)

    def owner_of(self, block: int) -> Ints:
        """The rank that holds each block of `block` tokens, a divisor of the unit, int64 [blocks]."""
        return np.repeat(self.owner, self.unit // block)[: -(-self.length // block)]


def contiguous(cost: NDArray, ranks: int) -> Ints:
    """Rank r holds the r-th stretch: the least traffic for local patterns."""
    return np.arange(len(cost)) * ranks // max(len(cost), 1)


def zigzag(cost: NDArray, ranks: int) -> Ints:
    """2 * ranks stretches, rank r holding the r-th and the r-th from the end: even for causal patterns.

    Source: the zigzag layout of ring attention for causal models (github.com/zhuzilin/ring-flash-attention).
    """
    stretch = np.arange(len(cost)) * 2 * ranks // max(len(cost), 1)
    return np.minimum(stretch, 2 * ranks - 1 - stretch)


def balanced(cost: NDArray, ranks: int) -> Ints:
    """Units sorted by cost and dealt out in turns of alternating direction: even for skewed patterns."""
    order = np.argsort(-cost, kind="stable")
    turn, place = np.divmod(np.arange(len(cost)), ranks)
    owner = np.empty(len(cost), np.int64)
    owner[order] = np.where(turn % 2 == 0, place, ranks - 1 - place)
    return owner


WAYS = {way.__name__: way for way in (contiguous, zigzag, balanced)}


def partition(length: int, unit: int, cost: NDArray, ranks: int, way: str) -> Partition:
    """Deal `length` tokens out to ranks; `cost` is a number a unit, such as its active pairs.

    >>> partition(100, 25, np.arange(4), 2, "zigzag").owner
    array([0, 1, 1, 0])
    """
    if way not in WAYS:
        raise StudioError(f"a partition is one of {', '.join(WAYS)}, got {way!r}")
    return Partition(length, unit, WAYS[way](cost, ranks).astype(np.int64), ranks)
