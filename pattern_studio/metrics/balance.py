"""balance: whether some query or key blocks have far more tiles than others."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..layout import BlockLayout, Runs
from .base import Metric

if TYPE_CHECKING:
    from .subject import Subject

PROCESSORS = 132  # streaming multiprocessors of an H100 SXM


@dataclass(frozen=True)
class LoadFigures:
    """Active tiles per line: the most, the mean, `ratio = max / mean` (1 is best), None with no active tile.

    `makespan_ratio`: the busiest processor's tiles / an even share, for lines handed out longest first.
    """

    max: int
    mean: float
    ratio: float | None
    makespan_ratio: float | None


@dataclass(frozen=True)
class BalanceFigures:
    """`rows`: query blocks, what the forward pass hands out; `columns`: key blocks, as the backward pass does."""

    rows: LoadFigures
    columns: LoadFigures


class Balance(Metric):
    """Active tiles per query block and per key block, over all heads.

    Unit: tiles. A kernel that gives each processor one line at a time waits for the longest, so with
    few lines `max / mean` bounds its efficiency; with many, the makespan does: the tiles of the
    busiest of 132 processors when lines go, longest first, to whoever is free, over total / 132.
    Every tile counts alike.

    Source: longest processing time first, Graham, "Bounds on multiprocessing timing anomalies", 1969.

    Key: `balance` (BalanceFigures).
    """

    def __init__(self, subject: Subject) -> None:
        layout = subject.layout
        self.rows = _loads(layout, layout.rows, layout.q_blocks)  # int64 [heads, q_blocks]
        self.columns = _loads(layout, layout.columns, layout.kv_blocks)  # int64 [heads, kv_blocks]

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return {"balance": BalanceFigures(_figures(self.rows[heads].ravel()), _figures(self.columns[heads].ravel()))}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        # Layers run one after the other: the worst one is what to look at.
        each = [part.figures()["balance"] for part in layers]
        return {
            "balance": BalanceFigures(
                max((one.rows for one in each), key=_ratio), max((one.columns for one in each), key=_ratio)
            )
        }


def layout_balance(layout: BlockLayout) -> tuple[float | None, float | None]:
    """The most active tiles of a query block / their mean, and the same of key blocks: the `ratio` of LoadFigures.

    1 is best; None with no active tile. Handing lines out to processors is left away: it takes longer than lowering.

    >>> import pattern_studio as ps
    >>> layout_balance(ps.lower(ps.sink(1), q_len=6, block=2))
    (1.0, 3.0)
    """
    sides = ((layout.rows, layout.q_blocks), (layout.columns, layout.kv_blocks))
    rows, columns = (_loads(layout, runs, lines) for runs, lines in sides)
    return _uneven(rows), _uneven(columns)


def _uneven(loads: NDArray[np.int64]) -> float | None:
    total = int(loads.sum())
    return int(loads.max()) * loads.size / total if total else None


def _ratio(load: LoadFigures) -> float:
    return load.ratio or 0


def _loads(layout: BlockLayout, runs: Runs, lines: int) -> NDArray[np.int64]:
    tiles = np.bincount(runs.line, runs.length, layout.groups * lines).astype(np.int64)
    return tiles.reshape(layout.groups, lines)[layout.head_group]


def _figures(loads: NDArray[np.int64]) -> LoadFigures:
    total, most = int(loads.sum()), int(loads.max())
    if not total:
        return LoadFigures(0, 0.0, None, None)
    busy = [0] * PROCESSORS
    for load in sorted(loads.tolist(), reverse=True):
        heapq.heapreplace(busy, busy[0] + load)
    mean = total / len(loads)
    return LoadFigures(most, mean, most / mean, max(busy) / (total / PROCESSORS))


METRIC = Balance
