"""gqa_union: how much the query heads that share a KV head agree on what to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..layout import BlockLayout
from .base import Metric
from .subject import Subject


class GqaUnion(Metric):
    """Tiles that the query heads of a KV head read together / mean tiles of one of them.

    `union / mean` over KV heads, from 1 (all of a group read the same tiles, so keys are loaded once
    for all) to the group size (they share nothing). Tiles of the same query block and key block are
    the same. Summed over KV heads and layers before dividing; None where every query head has a KV
    head of its own, where no tile is active, and for a head alone.

    Source: why grouped-query attention wants selection per group, as in Native Sparse Attention
    (Yuan et al., arXiv:2502.11089).

    Key: `gqa_union`.
    """

    def __init__(self, subject: Subject) -> None:
        layer, layout = subject.layer, subject.layout
        share = layer.heads // layer.kv_heads
        self.sums = np.zeros(2)  # union tiles, mean tiles
        if share == 1:
            return
        tiles = np.bincount(layout.rows.line // layout.q_blocks, layout.rows.length, layout.groups)
        for groups in layout.head_group.reshape(-1, share):
            self.sums += _union(layout, np.unique(groups)), tiles[groups].mean()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return _figures(self.sums) if heads == slice(None) else {"gqa_union": None}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return _figures(np.sum([part.sums for part in layers], axis=0))


def _union(layout: BlockLayout, groups: NDArray[np.int32]) -> int:
    """Tiles that any of the groups has active, from the runs alone."""
    rows = layout.rows
    chosen = np.isin(rows.line // layout.q_blocks, groups)
    # One axis for all query blocks, each a stretch of its own: runs never reach into the next.
    start = np.sort(begin := (rows.line % layout.q_blocks * layout.kv_blocks + rows.start)[chosen])
    stop = (begin + rows.length[chosen])[np.argsort(begin, kind="stable")]
    covered = np.maximum.accumulate(np.r_[0, stop])
    return int(np.maximum(stop - np.maximum(start, covered[:-1]), 0).sum())


def _figures(sums: NDArray[np.float64]) -> dict[str, Any]:
    union, mean = sums.tolist()
    return {"gqa_union": union / mean if mean else None}


METRIC = GqaUnion
