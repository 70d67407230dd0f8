"""What the map is sent: A20's pooled picture, in tokens, row 0 on top, and words for the pointer."""

from __future__ import annotations

import json
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from pattern_studio_app.map_view import map_view
from PIL import Image

import pattern_studio as ps
from pattern_studio.metrics import layout_stats
from pattern_studio.plot import Viewport
from pattern_studio.plot.colours import DARK, LIGHT, rgb


def view(text: str, q_len: int, viewport=None, colours=LIGHT, block=128, head=0, heads=1) -> dict:
    pattern = ps.parse(text)
    layout = ps.lower(pattern, q_len=q_len, heads=heads, block=block)
    return map_view(layout, pattern, head, 0, viewport, colours)


def pixels(found: dict) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(b64decode(found["image"]))))


def test_a20_a_long_mask_is_small_in_tokens_and_the_right_way_up():
    found = view("causal & (window(511, 0) | sink(64))", 16_384)
    picture = pixels(found)
    assert picture.shape[:2] == (found["rows"]["cells"], found["keys"]["cells"])
    assert max(picture.shape) <= 1024
    told = found["told"]
    shape = (len(told["rows"]) - 1, len(told["keys"]) - 1)
    pairs = np.array(told["pairs"]).reshape(shape)
    expected = layout_stats(ps.parse("causal & (window(511, 0) | sink(64))"), ps.Problem(16_384), 128).pairs
    assert pairs.sum() == expected
    assert (picture[0, -1] == rgb(LIGHT.background)).all()  # the first query does not see the last key
    assert (picture[-1, -1] != rgb(LIGHT.background)).any()
    assert found["rows"]["ticks"][-1] == [16_384, "16K"]
    assert len(json.dumps(found)) < 100_000


def test_a_million_tokens_are_as_little_to_send_as_a_thousand():
    short = len(json.dumps(view("causal & (window(255, 0) | sink(4))", 1024, block=64)))
    long = len(json.dumps(view("causal & (window(255, 0) | sink(4))", 1_048_576)))
    assert long < 6 * short


@pytest.mark.parametrize(("c", "other"), [(LIGHT, DARK), (DARK, LIGHT)])
def test_the_picture_has_the_colours_of_its_theme(c, other):
    found = view("causal & window(100, 0)", 256, colours=c, block=64)
    seen = {tuple(colour) for colour in pixels(found).reshape(-1, 3).tolist()}
    assert {rgb(c.background), rgb(c.masked), rgb(c.partial)} <= seen
    assert rgb(other.background) not in seen
    assert c.background in [colour for colour, _ in found["legend"]]


def test_down_to_single_tokens_every_pair_has_its_own_words():
    found = view("causal & (window(3, 0) | sink(1))", 4096, Viewport(2048, 2056, 2040, 2056))
    told = found["told"]
    assert found["rows"]["unit"] == 1
    width = len(told["keys"]) - 1
    assert np.diff(told["rows"]).max() == np.diff(told["keys"]).max() == 1

    def about(row: int, key: int) -> str:
        return told["words"][told["why"][told["rows"].index(row) * width + told["keys"].index(key)]]

    assert about(2050, 2048) == "window(3, 0) keeps it"
    assert about(2050, 2045) == "neither window(3, 0) nor sink(1) keeps it"
    assert about(2050, 2053) == "causal forbids it"


def test_other_heads_have_other_words():
    text = "heads({0: causal, 1: window(7, 0)})"
    first, second = (view(text, 512, block=64, head=head, heads=2)["told"]["words"] for head in (0, 1))
    assert "causal keeps it" in first
    assert "window(7, 0) keeps it" in second
