"""locality: how far from their queries the kept keys lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .base import Metric
from .diagonals import diagonal_counts
from .subject import Subject

NEAR = 128  # tokens: the tile of the fused kernels


@dataclass(frozen=True)
class PairBand:
    """Distances `first..last` (inclusive, tokens): kept pairs, and their share of the dense mask's pairs there."""

    first: int
    last: int
    pairs: int
    density: float


@dataclass(frozen=True)
class LocalityFigures:
    """Of the kept pairs; None where there are none.

    - near: the share with `|i - j| < 128` tokens.
    - mean_distance: mean `|i - j|` in tokens; `dense_distance` is that of the dense mask.
    - bands: kept pairs by distance.
    """

    near: float | None
    mean_distance: float | None
    dense_distance: float
    bands: tuple[PairBand, ...]


class Locality(Metric):
    """Distances `|i - j|` of the pairs that the pattern keeps inside the dense mask, each pair counting once.

    Unit: tokens, and fractions. It says where the pattern looks, not where the model does: beside
    `distance`, which weighs pairs by their dense attention, it shows what is spent where little is.
    Neither end is better. Bands are those of `distance`: 0, 1-3, 4-15, 16-63, ... tokens.

    Source: the span and the density by distance that sparse attention papers draw, such as
    Longformer (Beltagy et al., arXiv:2004.05150).

    Key: `locality` (LocalityFigures).
    """

    def __init__(self, subject: Subject) -> None:
        kept, tokens = subject.kept, subject.layer.tokens
        # int64 [heads, tokens]: pairs of each head by distance, both sides together.
        self.pairs = _by_distance(diagonal_counts(kept), tokens)[kept.head_group]
        away = np.arange(tokens, 0, -1)  # pairs of one diagonal
        sides = np.where(np.arange(tokens) > 0, 1 if subject.capture.causal else 2, 1)
        self.dense = away * sides

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        chosen = self.pairs[heads]
        return _figures(chosen.sum(0), self.dense * len(chosen))

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        pairs = sum(part.pairs.sum(0) for part in layers)
        return _figures(np.asarray(pairs), np.asarray(sum(part.dense * len(part.pairs) for part in layers)))


def _by_distance(diagonals: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    out = diagonals[:, tokens - 1 :].copy()
    out[:, 1:] += diagonals[:, : tokens - 1][:, ::-1]
    return out


def _figures(pairs: NDArray[np.int64], dense: NDArray[np.int64]) -> dict[str, Any]:
    tokens, total = len(pairs), int(pairs.sum())
    away = np.arange(tokens)
    starts = np.array([0, *(4**n for n in range(16) if 4**n < tokens)])
    kept, there = (np.add.reduceat(counts, starts) for counts in (pairs, dense))
    last = np.r_[starts[1:], tokens] - 1
    bands = tuple(
        PairBand(int(first), int(end), int(k), float(k / d))
        for first, end, k, d in zip(starts, last, kept, there, strict=True)
    )
    near = float(pairs[:NEAR].sum() / total) if total else None
    mean = float(pairs @ away / total) if total else None
    return {"locality": LocalityFigures(near, mean, float(dense @ away / dense.sum()), bands)}


METRIC = Locality
