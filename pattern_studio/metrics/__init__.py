"""What a pattern keeps: densities from its layout, and quality against a capture of a real model.

`layout_stats` needs numpy only. All that reads a capture needs torch, which takes seconds to load:
it is imported on first use.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import StudioError
from .balance import layout_balance
from .base import Metric, StreamedMetric
from .cost import CostFigures, layout_cost
from .density import DensityFigures, LayoutStats, TileCounts, layout_stats, stats_of_layout
from .receptive_field import Depth, ReceptiveField, receptive_field

if TYPE_CHECKING:
    from .analyzer import analyze
    from .maps import block_mass, row_recall
    from .report import HeadReport, LayerReport, Report

# The registry: one file each, listed here by hand, its class named METRIC. See CONTRIBUTING.md to add one.
METRICS = (
    "minded_damage",
    "damage",
    "recall",
    "output_error",
    "oracle",
    "divergence",
    "top_k",
    "distance",
    "density",
    "row_density",
    "diagonal_density",
    "locality",
    "balance",
    "gqa_union",
    "cost",
)

_NEED_TORCH = {
    "analyze": "analyzer",
    "block_mass": "maps",
    "row_recall": "maps",
    "HeadReport": "report",
    "LayerReport": "report",
    "Report": "report",
}

__all__ = [
    "METRICS",
    "CostFigures",
    "DensityFigures",
    "Depth",
    "HeadReport",
    "LayerReport",
    "LayoutStats",
    "Metric",
    "ReceptiveField",
    "Report",
    "StreamedMetric",
    "TileCounts",
    "analyze",
    "block_mass",
    "layout_balance",
    "layout_cost",
    "layout_stats",
    "metric",
    "receptive_field",
    "row_recall",
    "stats_of_layout",
]


def metric(name: str) -> type[Metric]:
    """The metric of a name in METRICS.

    >>> metric("recall").__name__
    'Recall'
    """
    if name not in METRICS:
        near = get_close_matches(str(name), METRICS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "choose from these"
        raise StudioError(f"expected a metric among {', '.join(METRICS)}, got {name!r}; {hint}")
    return import_module(f"{__name__}.{name}").METRIC


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
