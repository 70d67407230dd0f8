"""divergence: how far the pattern's attention distribution is from the dense one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject


@dataclass(frozen=True)
class DivergenceFigures:
    """Means over rows. `kl` in nats is infinite as soon as one of the `infinite_rows` is; the others are bounded."""

    kl: float
    total_variation: float
    jensen_shannon: float
    infinite_rows: int


class Divergence(StreamedMetric):
    """Three distances of the pattern's renormalised attention S from the dense attention A.

    With S = A on the pattern, divided by the row's mass recall r, all follow from r:

    - `KL(S || A) = -ln r`, in nats, 0 is best. The other direction, KL(A || S), is infinite as soon
      as any mass is dropped, since S is 0 where A is not; so it is never a useful number here.
    - total variation `= 1 - r`, 0 to 1, 0 is best.
    - Jensen-Shannon, in nats, 0 to ln 2, 0 is best:
      `1/2 ln(2 / (1 + r)) + r/2 ln(2 r / (1 + r)) + (1 - r)/2 ln 2`.

    0 ln 0 is 0. An empty row keeps nothing: its KL is infinite, its total variation 1 and its
    Jensen-Shannon ln 2, the greatest there are; it is counted like any other.

    Source: Lin, "Divergence measures based on the Shannon entropy", IEEE Trans. Inf. Theory 37 (1991).

    Key: `divergence` (DivergenceFigures).
    """

    def __init__(self, subject: Subject) -> None:
        self.rows = subject.layer.tokens
        self.sums = torch.zeros(4, subject.layer.heads, dtype=torch.float64)  # the four figures, summed over rows

    def add(self, chunk: Chunk) -> None:
        r, log_r = chunk.recall.double(), chunk.log_recall.double()
        shared = r.log1p() - math.log(2)  # ln((1 + r) / 2)
        jensen_shannon = (torch.xlogy(r, r) - (1 + r) * shared + (1 - r) * math.log(2)) / 2
        parts = (0 - log_r, 1 - r, jensen_shannon, log_r.isinf())  # 0 - x: a -0.0 would look like a fault
        self.sums[:, chunk.heads] += torch.stack([part.sum(-1) for part in parts]).cpu()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        sums = self.sums[:, heads]
        return _figures(sums.sum(1), self.rows * sums.shape[1])

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        sums = torch.cat([part.sums for part in layers], 1)
        return _figures(sums.sum(1), layers[0].rows * sums.shape[1])


def _figures(sums: Tensor, rows: int) -> dict[str, Any]:
    kl, total_variation, jensen_shannon, infinite_rows = sums.tolist()
    return {
        "divergence": DivergenceFigures(kl / rows, total_variation / rows, jensen_shannon / rows, int(infinite_rows))
    }


METRIC = Divergence
