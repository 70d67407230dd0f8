"""damage: one figure that ranks patterns by what they cost a model's loss, from heads' lost mass and output error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject

LOST, TURNED = 4, 2  # orders of the power means over heads: see the study named below


class Damage(StreamedMetric):
    """How much a pattern hurts, `sqrt(lost * turned)`, 0 to 1; 0 is best. It has no unit: it ranks, no more.

    `lost = (mean over heads of (1 - r_h)^4)^(1/4)`, r_h a head's mean mass recall, and `turned = (mean over
    heads of (1 - c_h)^2)^(1/2)`, c_h the cosine of a head's output with and without the pattern (below 0
    counts as 0, as does an output of 0). High orders because the loss follows the heads that lose most: a mean
    lets a hundred whole heads hide ten starved ones. None where the dense output is 0 throughout.

    Source: ours. Chosen among power means on all-MiniLM-L6-v2 and SmolLM2-135M at 256 tokens, measured on
    others; its rank correlation with the loss is in gallery/claims, from `python -m benchmarks.predictors`.

    Key: `damage`.

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> from pattern_studio.metrics import analyze
    >>> texts = "causal", "causal & (window(255, 0) | sink(4))", "causal & window(255, 0)"
    >>> [round(analyze(ps.parse(text), bundled(), metrics=["damage"]).damage, 3) for text in texts]
    [0.0, 0.14, 0.248]
    """

    def __init__(self, subject: Subject) -> None:
        self.rows = subject.layer.tokens
        # Per head: recall summed over rows, |o|^2, |o_M|^2, o . o_M.
        self.sums = torch.zeros(4, subject.layer.heads, dtype=torch.float64)

    def add(self, chunk: Chunk) -> None:
        o, sparse = chunk.dense_out.double(), chunk.sparse_out.double()
        outputs = [part.sum((1, 2)) for part in (o.square(), sparse.square(), o * sparse)]
        self.sums[:, chunk.heads] += torch.stack([chunk.recall.double().sum(1), *outputs]).cpu()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return {"damage": _damage(self.sums[:, heads], self.rows)}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return {"damage": _damage(torch.cat([part.sums for part in layers], 1), layers[0].rows)}


def _damage(sums: Tensor, rows: int) -> float | None:
    recall, dense, sparse, dot = sums
    if not dense.any():
        return None
    size = (dense * sparse).sqrt()
    cosine = torch.where(size > 0, dot / torch.where(size > 0, size, 1), 0).clamp(0, 1)
    lost = (1 - recall / rows).clamp(min=0).pow(LOST).mean().pow(1 / LOST)
    turned = (1 - cosine).pow(TURNED).mean().pow(1 / TURNED)
    return float((lost * turned).sqrt())


METRIC = Damage
