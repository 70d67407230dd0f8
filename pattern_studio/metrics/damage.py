"""damage: one figure that ranks patterns by what they cost a model's loss, from heads' lost mass and output error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject
from .turned import turned, weighed

LOST, TURNED = 4, 2  # orders of the power means over heads: see the study named below


class Damage(StreamedMetric):
    """How much a pattern hurts, `sqrt(lost * turned)`, 0 to 1; 0 is best. It has no unit: it ranks, no more.

    `lost = (mean over heads of (1 - r_h)^4)^(1/4)`, r_h a head's mean mass recall, and `turned = (mean over
    heads of (1 - c_h)^2)^(1/2)`, c_h the cosine of a head's output with and without the pattern (below 0
    counts as 0, as does an output of 0). High orders because the loss follows the heads that lose most: a mean
    lets a hundred whole heads hide ten starved ones. None where the dense output is 0 throughout.

    Where it is known how much the loss minds each layer (`Capture.sensitivity`), also `weighted_damage`, 0 to 1,
    0 is best: `mean over all rows of (1 - r_i)^2`, r_i a row's recall, times `(sum over layers of w_l (mean over
    the layer's heads of (1 - c_h)^8))^(1/8)`, w_l the layers' weights with sum 1. None where they are all 0.

    Source: ours. Chosen among power means on all-MiniLM-L6-v2 and SmolLM2-135M at 256 tokens, measured on
    others; both rank correlations are in gallery/claims, from `python -m benchmarks.predictors`.

    Keys: `damage`; `weighted_damage` only where the layers' sensitivity is known.

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> from pattern_studio.metrics import analyze
    >>> texts = "causal", "causal & (window(255, 0) | sink(4))", "causal & window(255, 0)"
    >>> reports = [analyze(ps.parse(text), bundled(), metrics=["damage"]) for text in texts]
    >>> [round(report.damage, 3) for report in reports]
    [0.0, 0.14, 0.248]
    >>> reports = [analyze(ps.parse(text), bundled(), metrics=["damage"], sensitivity=[1, 3]) for text in texts]
    >>> [round(report.weighted_damage, 3) for report in reports]
    [0.0, 0.015, 0.06]
    """

    def __init__(self, subject: Subject) -> None:
        self.rows, self.weight = subject.layer.tokens, subject.weight
        # Per head: recall summed over rows, |o|^2, |o_M|^2, o . o_M, and lost mass squared.
        self.sums = torch.zeros(5, subject.layer.heads, dtype=torch.float64)

    def add(self, chunk: Chunk) -> None:
        o, sparse, recall = chunk.dense_out.double(), chunk.sparse_out.double(), chunk.recall.double()
        outputs = [part.sum((1, 2)) for part in (o.square(), sparse.square(), o * sparse)]
        self.sums[:, chunk.heads] += torch.stack([recall.sum(1), *outputs, (1 - recall).square().sum(1)]).cpu()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        # Alone it has no other to be weighed against.
        return _figures([self.sums[:, heads]], [None if self.weight is None else 1], self.rows)

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return _figures([part.sums for part in layers], [part.weight for part in layers], layers[0].rows)


def _figures(layers: list[Tensor], weights: list[float | None], rows: int) -> dict[str, Any]:
    """Both figures of some heads, of each layer `[5, heads]`."""
    recall, dense, *_, squares = sums = torch.cat(layers, 1)
    known = [weight for weight in weights if weight is not None]  # all of them or none
    if not dense.any():
        return {"damage": None} | ({"weighted_damage": None} if known else {})
    lost = (1 - recall / rows).clamp(min=0).pow(LOST).mean().pow(1 / LOST)
    way = turned(*sums[1:4]).pow(TURNED).mean().pow(1 / TURNED)
    found: dict[str, Any] = {"damage": float((lost * way).sqrt())}
    if known:
        mean = weighed([turned(*part[1:4]) for part in layers], known)
        found["weighted_damage"] = None if mean is None else float(squares.mean() / rows) * mean
    return found


METRIC = Damage
