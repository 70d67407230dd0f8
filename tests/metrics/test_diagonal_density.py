"""Queries that keep their own key; against the dense mask in test_locality.py."""

from __future__ import annotations

import pytest

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import capture_of, weighted

CAPTURE = capture_of(weighted([[1, 1, 1, 1]] * 2), causal=True)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(ps.causal, 1), (ps.sink(1), 1 / 4), (~ps.window(0, 0), 0), (ps.heads({0: ps.causal, 1: ps.sink(2)}), 3 / 4)],
)
def test_by_hand(pattern, expected):
    assert analyze(pattern, CAPTURE, block=2, metrics=["diagonal_density"]).figures["diagonal_density"] == expected


def test_heads_apart():
    report = analyze(ps.heads({0: ps.causal, 1: ps.sink(2)}), CAPTURE, metrics=["diagonal_density"])
    assert [head.figures["diagonal_density"] for head in report.layers[0].heads] == [1, 1 / 2]
