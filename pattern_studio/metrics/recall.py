"""recall: the share of the dense attention that a pattern keeps, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject

WORST = 5  # rows that are named


@dataclass(frozen=True)
class RecallFigures:
    """Over all query rows: their mean, the 1st percentile (linearly interpolated) and the lowest."""

    mean: float
    p1: float
    min: float


@dataclass(frozen=True)
class WorstRow:
    """A row of low recall: `row` is the position of the query, `token` its text."""

    layer: int
    head: int
    row: int
    token: str
    recall: float


class Recall(StreamedMetric):
    """Mass recall of row i: `r_i = sum_j A_ij M_ij = exp(LSE_pattern,i - LSE_dense,i)`.

    A is the softmax under the model's own dense mask, M the pattern inside it. Unit: a fraction,
    0 to 1; 1 is best. Every row of every head counts once, an empty row with 0. A high mean can hide
    rows that lose everything: read p1, min and the rows that are named.

    Source: sparse softmax attention's "recall" or "attention mass", as in MInference (Jiang et al.,
    arXiv:2407.02490); the LSE form is FlashAttention's (Dao et al., arXiv:2205.14135).

    Keys: `recall` (RecallFigures), `worst_rows` (WorstRow, the lowest first).

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> from pattern_studio.metrics import analyze
    >>> report = analyze(ps.parse("causal & (window(63, 0) | sink(4))"), bundled(), metrics=["recall"])
    >>> round(report.recall.mean, 3)
    0.556
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.rows: NDArray[np.float64] = np.empty((subject.layer.heads, subject.layer.tokens))

    def add(self, chunk: Chunk) -> None:
        self.rows[chunk.heads, chunk.first : chunk.stop] = chunk.recall.cpu().numpy()

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return {"recall": _summary([self.rows[heads]]), "worst_rows": _worst([self], heads)}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return {"recall": _summary([part.rows for part in layers]), "worst_rows": _worst(layers, slice(None))}


def _summary(parts: Sequence[NDArray[np.float64]]) -> RecallFigures:
    rows = np.concatenate([part.ravel() for part in parts])
    return RecallFigures(float(rows.mean()), float(np.percentile(rows, 1)), float(rows.min()))


def _worst(parts: Sequence[Recall], heads: slice) -> list[WorstRow]:
    found = []
    for part in parts:
        chosen = part.rows[heads]
        # Stable: of equally bad rows the first head's first ones are named, the same every time.
        for at in np.argsort(chosen, axis=None, kind="stable")[:WORST]:
            head, row = divmod(int(at), chosen.shape[1])
            token = part.subject.capture.tokens[row]
            found.append(WorstRow(part.subject.number, head + (heads.start or 0), row, token, float(chosen[head, row])))
    return sorted(found, key=lambda worst: worst.recall)[:WORST]


METRIC = Recall
