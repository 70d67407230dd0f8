"""output_error: how far the pattern's attention output is from the dense one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject


@dataclass(frozen=True)
class OutputErrorFigures:
    """rel_l2 and rel_l1: 0 is best; cosine: 1 is best. None where an output is 0 throughout."""

    rel_l2: float | None
    rel_l1: float | None
    cosine: float | None


class OutputError(StreamedMetric):
    """Relative error of the output `o_M = softmax over M` against the dense `o`.

    `rel_l2 = |o - o_M|_2 / |o|_2`, `rel_l1` the same with absolute sums, `cosine = o . o_M / |o| |o_M|`,
    each over all rows (an empty row's output is 0) and channels of the heads asked about, stacked as
    the model's output projection reads them. Over layers the mean, since layers differ in the size
    of their values. No unit. Recall does not imply it: dropped mass is harmless where the dropped
    values resemble the kept ones. For each row `|o - o_M| <= 2 (1 - r) max |v|`.

    Source: the error that SpargeAttn (Zhang et al., arXiv:2502.18137) and others call relative L1
    or cosine similarity; the bound is the triangle inequality.

    Key: `output_error` (OutputErrorFigures).
    """

    def __init__(self, subject: Subject) -> None:
        # Per head: |o - o_M|^2, |o|^2, |o_M|^2, o . o_M, sum |o - o_M|, sum |o|.
        self.sums = torch.zeros(6, subject.layer.heads, dtype=torch.float64)

    def add(self, chunk: Chunk) -> None:
        o, sparse = chunk.dense_out.double(), chunk.sparse_out.double()
        off = o - sparse
        parts = (off.square(), o.square(), sparse.square(), o * sparse, off.abs(), o.abs())
        self.sums[:, chunk.heads] += torch.stack([part.sum((1, 2)) for part in parts]).cpu()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return {"output_error": _figures(self.sums[:, heads].sum(1))}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        each = [vars(_figures(part.sums.sum(1))) for part in layers]
        return {"output_error": OutputErrorFigures(*(_mean([one[name] for one in each]) for name in each[0]))}


def _figures(sums: Tensor) -> OutputErrorFigures:
    off2, dense2, sparse2, dot, off1, dense1 = sums.tolist()
    if dense2 == 0:
        return OutputErrorFigures(None, None, None)
    cosine = dot / (dense2 * sparse2) ** 0.5 if sparse2 else None
    return OutputErrorFigures((off2 / dense2) ** 0.5, off1 / dense1, cosine)


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if len(there) == len(values) else None  # never a mean that left a layer out


METRIC = OutputError
