"""top_k: whether the keys that a row attends to most are among those that the pattern keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject

K = 32


@dataclass(frozen=True)
class TopKFigures:
    """Over all rows, each a fraction: their mean, 1st percentile and lowest."""

    k: int
    mean: float
    p1: float
    min: float


class TopK(StreamedMetric):
    """Top-k key recall of a row: how many of its k most attended keys the pattern keeps, as a fraction.

    The top keys are those whose score is at least the k-th highest of the row under the dense mask:
    where scores tie there are more than k, and a row that sees fewer than k keys has all of them on
    top. Unit: a fraction, 0 to 1; 1 is best; an empty row has 0. Unlike mass recall every top key
    weighs the same, so that one strong sink can't hide that the others are lost.

    Source: the hit rate of top-k attention, as in H2O (Zhang et al., arXiv:2306.14048).

    Key: `top_k_recall` (TopKFigures).
    """

    def __init__(self, subject: Subject) -> None:
        self.rows: NDArray[np.float64] = np.empty((subject.layer.heads, subject.layer.tokens))

    def add(self, chunk: Chunk) -> None:
        least = _kth_highest(chunk.scores, K).clamp(min=torch.finfo(chunk.scores.dtype).min)  # -inf is outside D
        top = torch.ge(chunk.scores, least.unsqueeze(-1), out=torch.empty_like(chunk.scores))
        share = (chunk.active(top) * chunk.mask).sum(-1) / top.sum(-1)
        self.rows[chunk.heads, chunk.first : chunk.stop] = share.cpu().numpy()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return _figures(self.rows[heads].ravel())

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return _figures(np.concatenate([part.rows.ravel() for part in layers]))


def _kth_highest(scores: Tensor, k: int) -> Tensor:
    """The k-th highest score of each row, or the lowest where there are fewer; [heads, rows]."""
    keys = scores.shape[-1]
    at = max(keys - k, 0)
    if scores.device.type == "cpu":  # numpy selects several times as fast there as torch's topk
        return torch.from_numpy(np.partition(scores.numpy(), at, -1)[..., at])
    return scores.topk(keys - at, -1, sorted=True).values[..., -1]


def _figures(rows: NDArray[np.float64]) -> dict[str, Any]:
    return {"top_k_recall": TopKFigures(K, float(rows.mean()), float(np.percentile(rows, 1)), float(rows.min()))}


METRIC = TopK
