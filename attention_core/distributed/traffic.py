"""Traffic: what travels over which link, counted, and the choices that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .needs import Needs

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Traffic:
    """How the keys of a layout travel between ranks: in a ring, or each to the ranks that read it.

    `common` says for each kind of KV head which key tiles travel by one all-reduce over all ranks instead,
    bool [kinds, kv_blocks]: an owner would have to send those to each reader by itself.
    """

    needs: Needs
    mode: str
    common: NDArray[np.bool_]

    @property
    def common_keys(self) -> int:
        """Keys that travel by the all-reduce, summed over KV heads."""
        heads = np.bincount(self.needs.kind_of, minlength=len(self.needs.kinds))
        return int(heads @ (self.common @ self.needs.widths))

    @property
    def keys_between(self) -> Ints:
        """Keys that each rank sends to each other, summed over KV heads, without the common ones, int64 [from, to]."""
        if self.mode == "fetch":
            return self.needs.keys_sent(~self.common)
        ranks = np.arange(self.needs.ranks)
        sizes = self.needs.keys.lengths * len(self.needs.kind_of)
        keys = np.zeros((len(ranks), len(ranks)), np.int64)
        following = (ranks + 1) % len(ranks)
        keys[ranks, following] = sizes.sum() - sizes[following]  # every shard but the one that the neighbour has
        np.fill_diagonal(keys, 0)
        return keys

    @property
    def reduced_between(self) -> Ints:
        """Keys' worth of the all-reduce, as a ring does it: to be summed, then told, to the next rank, int64."""
        ranks = np.arange(self.needs.ranks)
        keys = np.zeros((len(ranks), len(ranks)), np.int64)
        keys[ranks, (ranks + 1) % len(ranks)] = -(-2 * (len(ranks) - 1) * self.common_keys // len(ranks))
        np.fill_diagonal(keys, 0)
        return keys

    @property
    def busiest(self) -> int:
        """Keys that the busiest rank sends or receives, whichever is more."""
        keys = self.keys_between + self.reduced_between
        return int(max(keys.sum(0).max(), keys.sum(1).max()))


def common_tiles(needs: Needs) -> NDArray[np.bool_]:
    """Key tiles that at least half of the other ranks read, bool [kinds, kv_blocks]."""
    elsewhere = needs.reads & (needs.key_owner != np.arange(needs.ranks)[:, None])
    readers = elsewhere.sum(1)
    return (readers > 0) & (2 * readers >= needs.ranks - 1)


def routed(needs: Needs, mode: str, common: bool | None) -> Traffic:
    """The traffic of a mode; the all-reduce is taken by default where it at least halves the busiest rank's keys."""
    without = Traffic(needs, mode, np.zeros((len(needs.kinds), needs.layout.kv_blocks), bool))
    if common is False or mode == "ring" or needs.ranks == 1:
        return without
    with_common = Traffic(needs, mode, common_tiles(needs))
    return with_common if common or 2 * with_common.busiest <= without.busiest else without


def worth_overlapping(needs: Needs) -> bool:
    """Whether some rank fetches more bytes of K and V than its own q holds.

    Merging reads and writes tensors of q's size several times, in the card's memory; the link is about
    as many times slower. Where less comes in, waiting for it costs less than merging.
    """
    heads = max(needs.layout.problem.heads, len(needs.kind_of))
    return bool((2 * needs.keys_between.sum(0) > heads * needs.queries.lengths).any())
