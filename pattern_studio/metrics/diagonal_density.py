"""diagonal_density: how many queries keep their own key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .base import Metric
from .diagonals import diagonal_counts
from .subject import Subject


class DiagonalDensity(Metric):
    """Kept pairs with `i = j` / query rows.

    Unit: a fraction, 0 to 1. Below 1 some queries don't see themselves: with no residual path around
    attention they would forget their own token, and a causal row 0 without it is empty.

    Source: the self-loops of attention as a graph, as BigBird's proof needs them (Zaheer et al.,
    arXiv:2007.14062).

    Key: `diagonal_density`.
    """

    def __init__(self, subject: Subject) -> None:
        self.rows = subject.layer.tokens
        own = diagonal_counts(subject.kept)[:, self.rows - 1]
        self.own: NDArray[np.int64] = own[subject.kept.head_group]  # [heads]

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return {"diagonal_density": float(self.own[heads].mean() / self.rows)}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        own = np.concatenate([part.own for part in layers])
        return {"diagonal_density": float(own.mean() / layers[0].rows)}


METRIC = DiagonalDensity
