"""Predictors made of several figures: what a layer's error costs, weighed by how much the model minds that layer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def layer_weighted_error(row: dict[str, Any], sensitivity: dict[str, Any]) -> float:
    """`sum over layers of s_l e_l^2`: e_l a layer's relative output error, s_l what the model minds.

    s_l = max(added_l, 0) / e_ref,l^2 from one pattern that was put into each layer alone, on the text of the metrics:
    as many forward passes as there are layers, once for a model. Unit: that of the loss. A layer that errs twice as
    much costs four times as much, as a loss does near its minimum.

    >>> layer_weighted_error({"layer_errors": [0.2, 0.1]}, {"layer_errors": [0.1, 0.1], "added": [0.5, -0.1]})
    2.0
    """
    errors, reference = np.asarray(row["layer_errors"]), np.asarray(sensitivity["layer_errors"])
    minds = np.maximum(sensitivity["added"], 0) / np.square(reference)
    return float(round(minds @ np.square(errors), 12))


def damage(row: dict[str, Any]) -> float:
    """The metric `damage` from what a row keeps of its heads, for rows that are older than it.

    >>> row = {"heads": {"recall": "[[0.5, 0.5]]", "cosine": "[[0.5, 0.5]]"}}
    >>> round(damage(row), 6)
    0.5
    """
    lost, turned = _lost(row["heads"]), _turned(row["heads"])
    return float(((lost**4).mean() ** 0.25 * (turned**2).mean() ** 0.5) ** 0.5)


def weighted_damage(row: dict[str, Any], sensitivity: dict[str, Any]) -> float:
    """`rows.mean_square_lost` times the output error of heads, layers weighed by what the model minds.

    The error is `(sum over layers of w_l (mean over heads of (1 - cosine)^8))^(1/8)`, w_l in proportion to
    `moved_l` over the same mean of the reference pattern: how far one pattern in layer l alone moves what the
    model says. A floor for each row, one for each head, the output and the layers together.

    >>> heads = {"recall": "[[0.5]]", "cosine": "[[0.5]]"}
    >>> row = {"heads": heads, "figures": {"rows.mean_square_lost": 0.25}}
    >>> weighted_damage(row, {"heads": heads, "moved": [0.1]})
    0.125
    """
    return round(row["figures"]["rows.mean_square_lost"] * _weighed(row, sensitivity), 12)


def minded_damage(row: dict[str, Any], sensitivity: dict[str, Any]) -> float:
    """The metric `minded_damage`: what the loss minds of rows is in the row's figures, the layers' weights here.

    `sqrt(minded.lost * turned * minded.stirred)`, `turned` the error of `weighted_damage`. Chosen on the patterns of
    SmolLM2 and of Qwen2.5-Coder, both in view.

    >>> row = {"heads": {"cosine": "[[0.5]]"}, "figures": {"minded.lost": 0.25, "minded.stirred": 2.0}}
    >>> minded_damage(row, {"heads": {"cosine": "[[0.5]]"}, "moved": [0.1]})
    0.5
    """
    figures = row["figures"]
    return round((figures["minded.lost"] * _weighed(row, sensitivity) * figures["minded.stirred"]) ** 0.5, 12)


def lost_turned_error(row: dict[str, Any], sensitivity: dict[str, Any]) -> float:
    """Root mean squares of the mass that rows lose and of heads' relative output errors, times how heads turn.

    `sqrt(rows.mean_square_lost) * turned * sqrt(heads.error_mean_square)`, `turned` the error of `weighted_damage`.
    A cosine ends at 0, the relative error of a head that puts next to nothing out, as one on a sink does, does not:
    a pattern without the sink makes it say a lot. Chosen on SmolLM2, MiniLM and the first 35 patterns of Qwen2.5-Coder.

    >>> heads = {"recall": "[[0.5]]", "cosine": "[[0.5]]"}
    >>> row = {"heads": heads, "figures": {"rows.mean_square_lost": 0.25, "heads.error_mean_square": 4.0}}
    >>> lost_turned_error(row, {"heads": heads, "moved": [0.1]})
    0.5
    """
    figures = row["figures"]
    lost, error = figures["rows.mean_square_lost"] ** 0.5, figures["heads.error_mean_square"] ** 0.5
    return round(lost * _weighed(row, sensitivity) * error, 12)


def _weighed(row: dict[str, Any], sensitivity: dict[str, Any]) -> float:
    """How far heads turn, layers weighed by what the model minds: see `weighted_damage`."""
    reference = (_turned(sensitivity["heads"]) ** 8).mean(1)
    minds = np.asarray(sensitivity["moved"]) / reference
    return float((_turned(row["heads"]) ** 8).mean(1) @ minds / minds.sum()) ** 0.125


def _lost(heads: dict[str, str]) -> np.ndarray:
    return 1 - np.array(json.loads(heads["recall"]))  # [layers, heads]


def _turned(heads: dict[str, str]) -> np.ndarray:
    return 1 - np.array(json.loads(heads["cosine"])).clip(0, 1)
