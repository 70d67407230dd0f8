"""row_density: how evenly the kept keys are spread over the query rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .base import Metric
from .subject import Subject


@dataclass(frozen=True)
class RowDensityFigures:
    """Over rows: kept keys / keys that the dense mask shows the row (min, mean, max), and kept keys in tokens."""

    min: float
    mean: float
    max: float
    min_keys: int
    max_keys: int


class RowDensity(Metric):
    """Token density of each query row: keys kept inside the capture's dense mask / keys of that mask.

    Unit: fractions, and tokens for the counts. The mean over rows weighs a causal model's first rows,
    which see few keys, like the last; `density.token_of_causal` weighs pairs instead. An empty row
    has 0.

    Key: `row_density` (RowDensityFigures).
    """

    def __init__(self, subject: Subject) -> None:
        tokens = subject.layer.tokens
        self.keys: NDArray[np.int64] = subject.kept.group_row_counts[subject.kept.head_group]  # [heads, rows]
        self.seen = np.arange(1, tokens + 1) if subject.capture.causal else np.full(tokens, tokens)

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return _figures([self.keys[heads]], [self.keys[heads] / self.seen])

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return _figures([part.keys for part in layers], [part.keys / part.seen for part in layers])


def _figures(keys: Sequence[NDArray[np.int64]], density: Sequence[NDArray[np.float64]]) -> dict[str, Any]:
    count, share = (np.concatenate([part.ravel() for part in parts]) for parts in (keys, density))
    figures = RowDensityFigures(
        float(share.min()), float(share.mean()), float(share.max()), int(count.min()), int(count.max())
    )
    return {"row_density": figures}


METRIC = RowDensity
