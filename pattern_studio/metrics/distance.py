"""distance: how far back the dense attention looks, and what the pattern keeps at each distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject


@dataclass(frozen=True)
class Band:
    """Distances `first..last` (inclusive, tokens): the share of the dense mass there, and how much of it is kept.

    `recall = kept / dense`, None where there is no dense mass.
    """

    first: int
    last: int
    dense: float
    kept: float
    recall: float | None


@dataclass(frozen=True)
class DistanceFigures:
    """Mean distance in tokens of the dense and of the kept mass (None where nothing is kept), and the bands."""

    mean_dense: float
    mean_kept: float | None
    bands: tuple[Band, ...]


class Distance(StreamedMetric):
    """Dense and kept attention mass by distance `|i - j|`, in bands 0, 1-3, 4-15, 16-63, ... tokens.

    `dense` sums to 1 over the bands (the mean over rows of each row's probabilities), `kept` to the
    mean recall. Unit: fractions, and tokens for the mean distances. A band of high dense mass and
    low recall is where the pattern loses; kept mass is not renormalised.

    Source: attention distance, as in Dosovitskiy et al., arXiv:2010.11929.

    Key: `distance` (DistanceFigures).
    """

    def __init__(self, subject: Subject) -> None:
        tokens = subject.layer.tokens
        self.starts = np.array([0, *(4**n for n in range(16) if 4**n < tokens)])
        self.stop = tokens
        self.rows = subject.layer.tokens
        # [dense or kept, heads, bands and, last, mass times distance]
        self.sums = np.zeros((2, subject.layer.heads, len(self.starts) + 1))

    def add(self, chunk: Chunk) -> None:
        for at, mass in enumerate((chunk.dense, chunk.spread(chunk.kept))):
            profile = _diagonal_sums(mass).double().cpu().numpy()  # [heads, diagonals]
            distance = np.abs(chunk.stop - 1 - np.arange(profile.shape[1]))
            band = np.searchsorted(self.starts, distance, "right") - 1
            weights = np.zeros((profile.shape[1], len(self.starts) + 1))
            weights[np.arange(len(band)), band] = 1
            weights[:, -1] = distance
            self.sums[at, chunk.heads] += profile @ weights

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return self._figures(self.sums[:, heads])

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return layers[0]._figures(np.concatenate([part.sums for part in layers], axis=1))

    def _figures(self, sums: NDArray[np.float64]) -> dict[str, Any]:
        dense, kept = sums.mean(1) / self.rows
        last = np.r_[self.starts[1:], self.stop] - 1
        bands = tuple(
            Band(int(first), int(end), float(d), float(k), float(k / d) if d else None)
            for first, end, d, k in zip(self.starts, last, dense[:-1], kept[:-1], strict=True)
        )
        kept_mass = kept[:-1].sum()
        mean_kept = float(kept[-1] / kept_mass) if kept_mass else None
        return {"distance": DistanceFigures(float(dense[-1] / dense[:-1].sum()), mean_kept, bands)}


def _diagonal_sums(x: Tensor) -> Tensor:
    """Sums of each diagonal of [heads, rows, keys]: column c of the result is where `key - row = c - (rows - 1)`.

    Rows are written side by side with `rows - 1` zeros between; read back one cell wider, every row
    has moved left by its own number, and diagonals have become columns.
    """
    heads, rows, keys = x.shape
    width = keys + rows - 1
    line = x.new_zeros(heads, rows * (width + 1))
    line[:, : rows * width].view(heads, rows, width)[..., rows - 1 :] = x
    return line.view(heads, rows, width + 1).sum(1)[:, :width]


METRIC = Distance
