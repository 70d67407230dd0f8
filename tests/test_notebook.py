"""What notebooks show: a picture and figures of any pattern, or the reason in words."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.notebook import pattern_html, pattern_svg, sample
from tests import strategies


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("causal", "64 tokens, block 1"),
        ("causal & window(255, 0)", "512 tokens, block 8"),
        ("random(3, seed=900)", "64 tokens, block 1"),
        ("causal & window(1000000, 0)", "64 tokens, block 1"),
        ("causal & (window(1000000, 0) | sink(99))", "256 tokens, block 4"),
        ("heads({2:4: causal, 0: dense})", "64 tokens, block 1, head 2"),
        ("layers({1: causal & window(63, 0), 2: dense})", "128 tokens, block 2, layer 1"),
        ("causal & docs", "64 tokens, block 1, documents of 24, 8, 32 tokens"),
        ("(causal & window(99, 0)).within(docs)", "256 tokens, block 4, documents of 96, 32, 128 tokens"),
    ],
)
def test_shown_on_a_problem_that_fits(text, words):
    assert sample(ps.parse(text)).words == words


def test_the_picture_is_svg_and_the_page_holds_it():
    drawing = pattern_svg(ps.parse("causal & window(7, 0)"))
    assert drawing is not None
    assert ET.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
    page = pattern_html(ps.parse("causal & window(7, 0)"))
    found = re.search(r"base64,([^\"]+)", page)
    assert found is not None
    assert base64.b64decode(found[1]).decode() == drawing
    # 8 * 64 - 28 pairs of 64 * 64, and of 64 * 65 / 2.
    for figure in ("<td>484</td>", "<td>11.8 %</td>", "<td>23.3 %</td>", "token density, of the causal triangle"):
        assert figure in page
    assert "causal &amp; window(7, 0)" in page


def test_what_can_not_be_drawn_alone_says_why():
    pattern = ps.heads({0: ps.causal}) & ps.heads({1: ps.dense})
    assert pattern_svg(pattern) is None
    assert "No picture: head 0 has no pattern in heads(); it has 1" in pattern_html(pattern)


def test_a_long_text_is_cut():
    page = pattern_html(ps.blocks((1, 1), tuple((n,) for n in range(200))))
    assert " ...</code>" in page


@settings(max_examples=25, deadline=None)
@given(strategies.patterns())
def test_any_pattern_shows_something(pattern):
    assert pattern_html(pattern).startswith("<div><code>")
    drawing = pattern_svg(pattern)
    assert drawing is None or drawing.startswith("<svg")
