"""The colours of Pattern Studio, one meaning each, told apart with any colour vision (Okabe and Ito's set)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BACKGROUND = "#FFFFFF"  # an empty tile
FULL = "#0072B2"
PARTIAL = "#56B4E9"
MASKED = "#DDEDF8"  # inside an active tile but not allowed: computed, then thrown away
LOST = "#D55E00"  # attention mass that a pattern loses
ONLY_A = "#E69F00"
ONLY_B = "#009E73"
ORACLE = "#CC79A7"

INK = "#1B2733"
QUIET = "#5B6B7A"
LINE = "#D5DDE5"


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of `#RRGGBB`.

    >>> rgb(FULL)
    (0, 114, 178)
    """
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ramp(steps: int, *stops: str) -> NDArray[np.uint8]:
    """Colours from the first stop to the last, evenly spaced to the eye: uint8 [steps, 3].

    Mixed in Oklab (Ottosson 2020), where equal distances look equal.

    >>> ramp(3, MASKED, PARTIAL)[[0, -1]].tolist()
    [[221, 237, 248], [86, 180, 233]]
    """
    ends = _to_oklab(np.array([rgb(stop) for stop in stops]) / 255)
    at = np.r_[0, np.cumsum(np.linalg.norm(np.diff(ends, axis=0), axis=1))]
    mixed = np.stack([np.interp(np.linspace(0, at[-1], steps), at, channel) for channel in ends.T], 1)
    return np.round(_from_oklab(mixed).clip(0, 1) * 255).astype(np.uint8)


_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _to_oklab(srgb: NDArray) -> NDArray:
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T


def _from_oklab(lab: NDArray) -> NDArray:
    linear = (lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T
    linear = linear.clip(0, 1)
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
