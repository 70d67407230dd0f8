"""Balance of tiles by hand."""

from __future__ import annotations

import pytest

import pattern_studio as ps
from pattern_studio.metrics import analyze, layout_balance
from pattern_studio.metrics.balance import LoadFigures
from tests.metrics.captures import capture_of, weighted


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setattr("pattern_studio.metrics.balance.PROCESSORS", 2)


def balance(pattern, *layers, block=2):
    return analyze(pattern, capture_of(*layers), block=block, metrics=["balance"]).figures["balance"]


def test_by_hand():
    # A causal triangle of 3 x 3 tiles: rows of 1, 2, 3; columns of 3, 2, 1. Longest first gives 3 | 2 + 1.
    found = balance(ps.causal, weighted([1] * 6))
    assert found.rows == found.columns == LoadFigures(3, 2, 1.5, 1)


def test_a_sink_loads_one_column():
    # Rows of 1 tile each go 2 | 1 to two processors; one column has all 3 of them, and one processor with it.
    found = balance(ps.sink(1), weighted([1] * 6))
    assert found.rows == LoadFigures(1, 1, 1, pytest.approx(2 / 1.5))
    assert found.columns == LoadFigures(3, 1, 3, 2)


def test_heads_are_lines_of_their_own_and_the_worst_layer_is_named():
    pattern = ps.layers({0: ps.heads({0: ps.dense, 1: ps.empty}), 1: ps.dense})
    found = balance(pattern, weighted([[1, 1]] * 2), weighted([[1, 1]] * 2), block=1)
    assert found.rows == LoadFigures(2, 1, 2, 1)  # of layer 0: rows of 2, 2, 0, 0


def test_no_tiles():
    assert balance(ps.empty, weighted([1, 1])).rows == LoadFigures(0, 0, None, None)


@pytest.mark.parametrize("text", ["causal", "sink(1)", "heads({0: dense, 1: empty})", "empty"])
def test_a_layout_alone_says_the_same(text):
    pattern = ps.parse(text)
    found = balance(pattern, weighted([[1] * 6] * 2))
    layout = ps.lower(pattern, q_len=6, heads=2, block=2)
    assert layout_balance(layout) == (found.rows.ratio, found.columns.ratio)
