"""Needs: which key tiles each rank's query rows read, by KV head, and what that sends over each link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout

from .partition import WAYS, Partition, partition

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Needs:
    """A layout dealt out to ranks, in plain numpy: what can be counted before anything runs.

    KV heads whose query heads read the same groups of the layout form one *kind* and read the same
    keys: `kind_of` is int64 [kv_heads], `kinds` the groups of each kind.
    """

    layout: BlockLayout
    queries: Partition
    keys: Partition
    kinds: tuple[tuple[int, ...], ...]
    kind_of: Ints
    way: str

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.keys.ranks

    @cached_property
    def key_owner(self) -> Ints:
        """The rank that holds each key tile, int64 [kv_blocks]."""
        return self.keys.owner_of(self.layout.block[1])

    @cached_property
    def widths(self) -> Ints:
        """Keys of each key tile, int64 [kv_blocks]: the last one may be ragged."""
        block_k = self.layout.block[1]
        return np.minimum(block_k, self.layout.problem.kv_len - np.arange(self.layout.kv_blocks) * block_k)

    @cached_property
    def heads_of_group(self) -> Ints:
        """Query heads that follow each group of the layout, int64 [groups]; a layout for one head serves all."""
        return np.bincount(self.layout.head_group, minlength=self.layout.groups)

    def query_blocks(self, rank: int) -> Ints:
        """The query blocks of a rank, ascending, int64."""
        return np.flatnonzero(self.queries.owner_of(self.layout.block[0]) == rank)

    def lines(self, rank: int, group: int) -> Ints:
        """The lines of the layout's rows that a rank runs for one group, int64."""
        return group * self.layout.q_blocks + self.query_blocks(rank)

    def read(self, rank: int, kind: int) -> NDArray[np.bool_]:
        """Whether any row of a rank reads each key tile, for the KV heads of one kind, bool [kv_blocks]."""
        rows, tiles = self.layout.rows, self.layout.kv_blocks
        mine = np.zeros(len(rows.indptr) - 1, bool)
        for group in self.kinds[kind]:
            mine[self.lines(rank, group)] = True
        start = rows.start[mine[rows.line]].astype(np.int64)
        stop = start + rows.length[mine[rows.line]]
        opened = np.bincount(start, minlength=tiles + 1) - np.bincount(stop, minlength=tiles + 1)
        return opened.cumsum()[:tiles] > 0

    @cached_property
    def reads(self) -> NDArray[np.bool_]:
        """`read` of every kind and rank, bool [kinds, ranks, kv_blocks]."""
        found = [[self.read(rank, kind) for rank in range(self.ranks)] for kind in range(len(self.kinds))]
        return np.array(found, bool).reshape(len(self.kinds), self.ranks, self.layout.kv_blocks)

    def keys_sent(self, which: NDArray[np.bool_]) -> Ints:
        """Keys of some tiles, bool [kinds, kv_blocks], that each rank sends to each other, as `keys_between`."""
        sent = np.zeros((self.ranks, self.ranks), np.int64)
        heads = np.bincount(self.kind_of, minlength=len(self.kinds))
        for kind, of_rank in enumerate(self.reads & which[:, None]):
            for rank in range(self.ranks):
                keys = np.bincount(self.key_owner, self.widths * of_rank[rank], self.ranks)
                sent[:, rank] += heads[kind] * keys.astype(np.int64)
        np.fill_diagonal(sent, 0)
        return sent

    @cached_property
    def keys_between(self) -> Ints:
        """Keys that each rank reads of each other, summed over KV heads, int64 [from, to]; 0 of itself."""
        return self.keys_sent(np.ones((len(self.kinds), self.layout.kv_blocks), bool))

    @cached_property
    def ring_keys(self) -> int:
        """Keys, summed over KV heads, that a ring sends in all: every shard to every other rank."""
        return (self.ranks - 1) * self.layout.problem.kv_len * len(self.kind_of)

    @cached_property
    def pairs(self) -> Ints:
        """Pairs in active tiles that each rank computes, summed over the layout's heads, int64 [ranks]."""
        per_block = block_cost(self.layout)
        return np.bincount(self.queries.owner_of(self.layout.block[0]), per_block, self.ranks).astype(np.int64)

    @property
    def imbalance(self) -> float:
        """The busiest rank's pairs over the mean, at least 1: the bound on scaling is its inverse."""
        return float(self.pairs.max() / self.pairs.mean()) if self.pairs.any() else 1.0


def block_cost(layout: BlockLayout) -> Ints:
    """Pairs in active tiles of each query block, summed over heads, int64 [q_blocks]."""
    block_q, block_k = layout.block
    height = np.minimum(block_q, layout.problem.q_len - np.arange(layout.q_blocks) * block_q)
    group, block = np.divmod(layout.rows.line, max(layout.q_blocks, 1))
    heads = np.bincount(layout.head_group, minlength=layout.groups)
    first = layout.rows.start.astype(np.int64) * block_k
    keys = np.minimum(layout.rows.length.astype(np.int64) * block_k, layout.problem.kv_len - first)
    return np.bincount(block, keys * heads[group], layout.q_blocks).astype(np.int64) * height


def needs(layout: BlockLayout, ranks: int, kv_heads: int, way: str = "auto") -> Needs:
    """Deal a layout out to ranks and find what each must fetch.

    Where queries and keys are the same tokens (equal lengths, no offset), a rank holds the same
    positions of both. "auto" counts `contiguous`, `zigzag` and `balanced` and takes, among those
    whose busiest rank is within 5 % of the mean, the one that sends least; else the most even one.

    >>> import pattern_studio as ps
    >>> found = needs(ps.lower(ps.parse("causal & window(255, 0)"), q_len=4096, block=128), ranks=4, kv_heads=1)
    >>> found.way, found.keys_between.sum().item(), found.ring_keys
    ('contiguous', 768, 12288)
    """
    heads = layout.problem.heads
    if ranks < 1:
        raise StudioError(f"expected at least 1 rank, got {ranks}")
    if kv_heads < 1 or (heads > 1 and heads % kv_heads):
        raise StudioError(f"the layout's {heads} heads must be a whole multiple of kv_heads, got {kv_heads}")
    if way != "auto":
        return _dealt(layout, ranks, kv_heads, way)
    found = [_dealt(layout, ranks, kv_heads, each) for each in WAYS]
    even = [one for one in found if one.imbalance <= 1.05]
    if even:
        return min(even, key=lambda one: one.keys_between.sum())
    return min(found, key=lambda one: one.imbalance)


def _dealt(layout: BlockLayout, ranks: int, kv_heads: int, way: str) -> Needs:
    problem, (block_q, block_k) = layout.problem, layout.block
    cost = block_cost(layout)
    if problem.q_len == problem.kv_len and problem.offset == 0:
        unit = math.lcm(block_q, block_k)
        per_unit = np.add.reduceat(cost, np.arange(0, len(cost), unit // block_q)) if len(cost) else cost
        queries = keys = partition(problem.q_len, unit, per_unit, ranks, way)
    else:
        queries = partition(problem.q_len, block_q, cost, ranks, way)
        keys = partition(problem.kv_len, block_k, np.zeros(layout.kv_blocks), ranks, "contiguous")
    share = max(problem.heads // kv_heads, 1)
    reads = [
        tuple(np.unique(layout.head_group[head * share : (head + 1) * share]).tolist()) if problem.heads > 1 else (0,)
        for head in range(kv_heads)
    ]
    kinds = tuple(dict.fromkeys(reads))
    return Needs(layout, queries, keys, kinds, np.array([kinds.index(read) for read in reads], np.int64), way)
