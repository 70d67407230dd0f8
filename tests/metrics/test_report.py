"""The report as Markdown."""

from __future__ import annotations

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import capture_of, weighted


def test_markdown_shows_every_layer_head_and_figure():
    capture = capture_of(weighted([[3, 1], [1, 1]]), first=7)
    text = analyze(ps.sink(1), capture, block=1).to_markdown()
    assert text.startswith(
        "# `sink(1)`\n\nAgainst the dense full attention of made by hand, CC0, 2 tokens of: no text, CC0."
    )
    assert "Block 1 x 1." in text
    assert "| all | all | 0.625 | 0.5 | 0.5 | 0 | 0.625 | 0 |" in text
    assert "| 7 | 1 | 0.5 | 0.5 | 0.5 | 0 | 0.5 | 0 |" in text
    assert "| density.block | 0.5 |" in text
    assert "| gqa_union | - |" in text


def test_markdown_survives_any_token_and_missing_figures():
    capture = capture_of(weighted([1, 1]))
    object.__setattr__(capture, "tokens", ("a|b\n", "\u2028"))
    text = analyze(ps.sink(1), capture, metrics=["recall"]).to_markdown()
    assert "| all | all | 0.5 | 0.5 | 0.5 | - | - | - |" in text
    assert r"| worst_rows.1.token | a\|b\n |" in text
    assert r"| worst_rows.2.token | \u2028 |" in text
