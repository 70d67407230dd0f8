"""Predictors made of several figures: what a layer's error costs, weighed by how much the model minds that layer."""

from __future__ import annotations

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
