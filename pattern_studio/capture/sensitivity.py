"""What the layers of a capture weigh: numbers that say how much the model's loss minds each, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from reprlib import repr as short  # what a hostile file says may be megabytes long
from typing import Any

from pattern_studio.errors import StudioError


def checked_sensitivity(weights: Any, layers: int) -> tuple[float, ...]:
    """One weight for each of a capture's layers, in the order of their numbers, as floats; only their ratios count.

    Raises:
        StudioError: another count of them, one that is no finite number from 0 up, or none above 0.

    >>> checked_sensitivity([1, 0.5], layers=2)
    (1.0, 0.5)
    """
    listed = isinstance(weights, Sequence) and not isinstance(weights, str | bytes)
    if not listed or len(weights) != layers:
        raise StudioError(
            f"expected one weight for each of the capture's {layers} layers as its sensitivity, got {short(weights)}; "
            "give them in the order of the layers' numbers"
        )
    weight: Any
    for weight in weights:
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise StudioError(
                f"expected a layer's sensitivity to be a finite number from 0 up, got {short(weight)}; "
                "a layer that the loss does not mind has 0"
            )
    if not any(weights):
        raise StudioError("expected a layer that the loss minds, got a sensitivity of 0 for all; leave it out")
    return tuple(map(float, weights))
