"""Every number that analyze() finds, by name, and what only heads, rows and layers tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from pattern_studio.metrics import Report

# Higher is worse; of all others the sign is found. Without it no metric could be said to mislead.
NOT_OF_THE_WHOLE = ("pattern", "capture", "hash", "text", "tokens", "causal", "block", "layers", "worst_rows")


def figures_of(report: Report) -> dict[str, float]:
    """Dotted names to numbers. An infinite or missing figure is left out, as is what is no number.

    Beyond the report's own: `heads.*` over the heads of all layers (the worst, the worst tenth's edge, mean squares),
    `rows.*` shares of rows of low recall, `layers.*` the worst layer.
    """
    values = {key: value for key, value in report.as_dict().items() if key not in NOT_OF_THE_WHOLE}
    found = dict(_numbers(values))
    heads = [head for layer in report.layers for head in layer.heads]
    recall = np.array([head.recall.mean for head in heads])
    error = np.array([head.output_error.rel_l2 for head in heads])
    layers = np.array([layer.output_error.rel_l2 for layer in report.layers])
    rows = np.concatenate([layer.row_recall.ravel() for layer in report.layers])
    return found | {
        "heads.recall_min": float(recall.min()),
        "heads.recall_p10": float(np.percentile(recall, 10)),
        "heads.recall_geometric": float(np.exp(np.log(np.maximum(recall, 1e-6)).mean())),
        "heads.error_max": float(error.max()),
        "heads.error_p90": float(np.percentile(error, 90)),
        "heads.error_mean": float(error.mean()),
        "heads.error_mean_square": float(np.square(error).mean()),
        "layers.error_max": float(layers.max()),
        "layers.error_mean_square": float(np.square(layers).mean()),
        "rows.below_half": float((rows < 0.5).mean()),
        "rows.below_tenth": float((rows < 0.1).mean()),
        "rows.mean_square_lost": float(np.square(1 - rows).mean()),
    }


def minded_of(report: Report) -> dict[str, float]:
    """What `minded_damage` is made of, but for the layers' weights: names and numbers as in `figures_of`."""
    return dict(_numbers({"minded": report.as_dict()["minded"]}))


def _numbers(values: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(values, dict):
        return [pair for key, part in values.items() for pair in _numbers(part, f"{name}.{key}" if name else key)]
    if isinstance(values, bool) or not isinstance(values, int | float):
        return []  # bands and the like are lists: no single figure
    return [(name, float(values))]
