"""The colours in numbers: words can be read, and no two meanings look alike, whatever the eyes and the theme."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pattern_studio.plot.colours import DARK, LIGHT, Colours, ramp, rgb

# Linear sRGB as it is seen, at full severity: Machado, Oliveira and Fernandes 2009, table 1.
EYES = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
THEMES = {"light": LIGHT, "dark": DARK}
themes = pytest.mark.parametrize("c", THEMES.values(), ids=THEMES)


def linear(colour: str) -> np.ndarray:
    part = np.array(rgb(colour)) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio, 1 to 21."""
    light, dark = sorted((float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, eyes: str) -> np.ndarray:
    """CIELAB (D65) of the colour as those eyes see it."""
    seen = (EYES[eyes] @ linear(colour)).clip(0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = (np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, eyes: str) -> float:
    """CIE76's Delta E: 2.3 is just noticeable side by side."""
    return float(np.linalg.norm(lab(one, eyes) - lab(other, eyes)))


def test_the_measures_on_known_values():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)
    assert distance("#000000", "#FFFFFF", "normal") == pytest.approx(100, abs=0.1)
    assert distance("#FF0000", "#00FF00", "normal") == pytest.approx(170.6, abs=0.2)
    assert distance("#C00000", "#5C5000", "protanopia") < distance("#C00000", "#5C5000", "normal") / 2


@themes
def test_words_can_be_read(c: Colours):
    for ground in (c.background, c.panel):
        for words in (c.ink, c.quiet, c.wrong):
            assert contrast(words, ground) >= 4.5, (words, ground)
        assert contrast(c.accent, ground) >= 4.5, (c.accent, ground)


@themes
def test_tiles_stand_out_from_the_ground(c: Colours):
    for colour in (c.full, c.partial):
        assert contrast(colour, c.background) >= 3, colour  # WCAG 2.2, 1.4.11: what is needed to read a graphic


@themes
@pytest.mark.parametrize("eyes", EYES)
def test_no_two_meanings_on_one_map_look_alike(c: Colours, eyes: str):
    maps = {
        "tiles": (c.background, c.masked, c.partial, c.full),
        "attention": (c.background, c.full, c.lost),
        "difference": (c.background, c.full, c.only_a, c.only_b),
        "trade-off": (c.background, c.full, c.only_b, c.only_a, c.ink, c.oracle),
    }
    for name, meanings in maps.items():
        for one, other in combinations(meanings, 2):
            least = 15 if name == "trade-off" else 20  # its marks have letters and shapes besides
            least = 7 if {one, other} == {c.background, c.masked} else least
            assert distance(one, other, eyes) >= least, (name, one, other, distance(one, other, eyes))


@themes
@pytest.mark.parametrize("eyes", EYES)
def test_a_ramp_only_moves_away_from_the_ground(c: Colours, eyes: str):
    ground = lab(c.background, eyes)[0]
    for stops in ((c.faint, c.partial, c.full), (c.masked, c.partial), (c.full_faint, c.full), (c.lost_faint, c.lost)):
        colours = ["#{:02X}{:02X}{:02X}".format(*colour) for colour in ramp(20, *stops).tolist()]
        away = [abs(lab(colour, eyes)[0] - ground) for colour in colours]
        assert away == sorted(away), stops
        assert contrast(colours[-1], c.background) >= 3, stops
