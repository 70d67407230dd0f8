"""Top-k key recall by hand."""

from __future__ import annotations

import numpy as np
import pytest

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import capture_of, weighted


@pytest.fixture(autouse=True)
def _two(monkeypatch):
    monkeypatch.setattr("pattern_studio.metrics.top_k.K", 2)


def top_2(pattern, weights, causal=False):
    return analyze(pattern, capture_of(weighted(weights), causal=causal), metrics=["top_k"]).figures["top_k_recall"]


def test_by_hand():
    # The two strongest keys of every row are 1 and 3; the window of the row and the one before has
    # none of them in row 0, and one in each other row.
    found = top_2(ps.window(1, 0), [1, 5, 2, 9])
    assert (found.k, found.mean, found.min) == (2, 0.375, 0)
    assert found.p1 == pytest.approx(np.percentile([0, 0.5, 0.5, 0.5], 1))


def test_mass_does_not_hide_lost_keys():
    # Key 0 holds 98 % of the mass, but it is one of two.
    assert top_2(ps.sink(1), [98, 1, 1]).mean == pytest.approx((1 / 3 + 1 / 3 + 1 / 3) / 3)  # 1 and 2 tie


def test_rows_with_fewer_keys_have_all_on_top():
    # Row 0 sees key 0 only and keeps it; rows 1 and 2 keep one of their two.
    found = top_2(ps.sink(1), [3, 2, 1], causal=True)
    assert (found.mean, found.min) == (pytest.approx((1 + 0.5 + 0.5) / 3), 0.5)


def test_empty_rows_count_with_0():
    assert top_2(ps.empty, [1, 2]).mean == 0
