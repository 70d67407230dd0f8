"""The colours of Pattern Studio, one meaning each, told apart with any colour vision (after Okabe and Ito's set)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Colours:
    """A ground and what stands on it, `#RRGGBB` each. The more of a tile is allowed, the more it stands out.

    - background: the ground, an empty tile; panel: behind inputs.
    - full, partial: tiles; masked: inside an active tile but not allowed, computed and then thrown away;
      faint: where a ramp over many tiles begins.
    - lost: attention mass that a pattern loses; only_a, only_b: pairs of one of two patterns; oracle: the best choice.
    - *_faint: where a ramp to that colour begins.
    - ink, quiet, line: words, words in the background, hairlines. wrong: words of an error; accent: what is pressed.
    """

    background: str
    panel: str
    full: str
    partial: str
    masked: str
    faint: str
    lost: str
    only_a: str
    only_b: str
    oracle: str
    full_faint: str
    lost_faint: str
    only_a_faint: str
    only_b_faint: str
    ink: str
    quiet: str
    line: str
    wrong: str
    accent: str


LIGHT = Colours(
    background="#FFFFFF",
    panel="#F3F6F9",
    full="#005A96",  # darker than their #0072B2, so that a partial tile, too, has a contrast of 3 against white
    partial="#3D9AD6",
    masked="#DDEDF8",
    faint="#BBDCF2",  # a band of 64 tokens in a million must be seen
    lost="#D55E00",
    only_a="#E69F00",
    only_b="#009E73",
    oracle="#CC79A7",
    full_faint="#E3EFF7",
    lost_faint="#FBEDE4",
    only_a_faint="#FBEFD6",
    only_b_faint="#D9F0E9",
    ink="#1B2733",
    quiet="#5B6B7A",
    line="#D5DDE5",
    wrong="#B84E00",
    accent="#0072B2",
)
DARK = Colours(
    background="#10171E",
    panel="#1A242D",
    full="#8CCBF2",
    partial="#2F86C1",
    masked="#16303F",
    faint="#1D4C69",
    lost="#F0772B",
    only_a="#E69F00",
    only_b="#12A176",
    oracle="#D992BA",
    full_faint="#17303F",
    lost_faint="#3A2418",
    only_a_faint="#3A2E14",
    only_b_faint="#12362C",
    ink="#E4EAF0",
    quiet="#9AA9B7",
    line="#33414D",
    wrong="#F58A45",
    accent="#56B4E9",
)

# The light ones by name, for pictures that are written to a file.
BACKGROUND, FULL, PARTIAL, MASKED = LIGHT.background, LIGHT.full, LIGHT.partial, LIGHT.masked
LOST, ONLY_A, ONLY_B, ORACLE = LIGHT.lost, LIGHT.only_a, LIGHT.only_b, LIGHT.oracle
INK, QUIET, LINE = LIGHT.ink, LIGHT.quiet, LIGHT.line


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of `#RRGGBB`.

    >>> rgb(FULL)
    (0, 90, 150)
    """
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ramp(steps: int, *stops: str) -> NDArray[np.uint8]:
    """Colours from the first stop to the last, evenly spaced to the eye: uint8 [steps, 3].

    Mixed in Oklab (Ottosson 2020), where equal distances look equal.

    >>> ramp(3, MASKED, PARTIAL)[[0, -1]].tolist()
    [[221, 237, 248], [61, 154, 214]]
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
