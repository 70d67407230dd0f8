"""Row density by hand."""

from __future__ import annotations

import pytest

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import capture_of, weighted


def row_density(pattern, *layers, causal):
    report = analyze(pattern, capture_of(*layers, causal=causal), metrics=["row_density"])
    return report.figures["row_density"], report.layers


def test_causal_rows_by_hand():
    # Kept 1, 2, 2, 2 of 1, 2, 3, 4 keys.
    found, _ = row_density(ps.window(1, 1), weighted([1] * 4), causal=True)
    assert (found.min, found.max, found.min_keys, found.max_keys) == (0.5, 1, 1, 2)
    assert found.mean == pytest.approx((1 + 1 + 2 / 3 + 1 / 2) / 4)


def test_full_rows_by_hand():
    # Kept 2, 3, 3, 2 of 4 keys.
    found, _ = row_density(ps.window(1, 1), weighted([1] * 4), causal=False)
    assert (found.min, found.mean, found.max, found.min_keys, found.max_keys) == (0.5, 0.625, 0.75, 2, 3)


def test_by_head_and_over_layers_with_empty_rows():
    pattern = ps.heads({0: ps.dense, 1: ps.layers({0: ps.empty, 1: ps.sink(1)})})
    found, layers = row_density(pattern, weighted([[1, 1]] * 2), weighted([[1, 1]] * 2), causal=False)
    assert [head.figures["row_density"].mean for head in layers[0].heads] == [1, 0]
    assert layers[1].figures["row_density"].mean == 0.75
    assert (found.min, found.mean, found.max, found.min_keys, found.max_keys) == (0, 0.625, 1, 0, 2)
