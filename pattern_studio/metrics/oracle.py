"""oracle: the recall that the best choice of equally many tiles would reach, and the regret of not choosing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject
from .tile_mass import TileMass


class Oracle(StreamedMetric):
    """Oracle recall at the pattern's own block budget, and `regret = oracle recall - recall >= 0`.

    For each head, with n active tiles in the pattern's layout: the mean recall of a pattern made of
    the n tiles (cut to the dense mask) that hold the most dense mass. No pattern with n active tiles
    of this block size keeps more on average. Tiles of the pattern that lie outside the dense mask
    are part of n: they cost as much. Over heads and layers the mean. Unit: a fraction, 0 to 1.
    Regret 0 is best: the pattern spends its tiles as well as can be; a low oracle recall means that
    this budget is too small for any block pattern.

    Source: the top-k block oracle of block-sparse attention work, such as SeerAttention (Gao et al.,
    arXiv:2410.13276).

    Keys: `oracle_recall`, `regret`.
    """

    def __init__(self, subject: Subject) -> None:
        layout = subject.layout
        group = layout.rows.line // max(layout.q_blocks, 1)
        tiles = np.bincount(group, layout.rows.length, layout.groups).astype(np.int64)
        self.budget: NDArray[np.int64] = tiles[layout.head_group]
        self.rows = subject.layer.tokens
        self.mass = TileMass(subject)
        self.recall, self.best = np.zeros((2, subject.layer.heads))

    def add(self, chunk: Chunk) -> None:
        self.mass.add(chunk)
        self.recall[chunk.heads] += chunk.recall.double().sum(-1).cpu().numpy() / self.rows

    def finish(self) -> None:
        for head, budget in enumerate(self.budget.tolist()):
            mass = self.mass.sums[head].cpu().numpy().ravel()
            if budget:
                top = np.partition(mass, len(mass) - budget)[-budget:]
                self.best[head] = top.sum(dtype=np.float64) / self.rows
        # Both add up the same probabilities, in another order: their last digits may disagree.
        self.best = np.clip(self.best, self.recall, 1)
        del self.mass  # the tiles of all layers together could be more than fits

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return _figures(self.recall[heads], self.best[heads])

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return _figures(
            np.concatenate([part.recall for part in layers]), np.concatenate([part.best for part in layers])
        )


def _figures(recall: NDArray[np.float64], best: NDArray[np.float64]) -> dict[str, Any]:
    oracle = float(best.mean())
    return {"oracle_recall": oracle, "regret": oracle - float(recall.mean())}


METRIC = Oracle
