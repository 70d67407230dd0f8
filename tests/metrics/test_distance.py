"""The distance profile by hand, and diagonal sums against a loop."""

from __future__ import annotations

import pytest
import torch

import pattern_studio as ps
from pattern_studio.metrics import analyze
from pattern_studio.metrics.distance import Band, _diagonal_sums
from tests.metrics.captures import capture_of, weighted


def distance(pattern, weights, causal=False):
    return analyze(pattern, capture_of(weighted(weights), causal=causal), metrics=["distance"]).figures["distance"]


def test_by_hand():
    # Uniform causal rows of 1, 1/2, 1/3, 1/4, 1/5: distance 0 has their mean, distance 4 only 1/5 of the last row.
    row = [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
    own, far = sum(row) / 5, row[4] / 5
    found = distance(ps.window(0, 0), [1] * 5, causal=True)
    assert found.bands == (
        Band(0, 0, pytest.approx(own), pytest.approx(own), 1),
        Band(1, 3, pytest.approx(1 - own - far), 0, 0),
        Band(4, 4, pytest.approx(far), 0, 0),
    )
    assert found.mean_dense == pytest.approx((0 + 0.5 + 1 + 1.5 + 2) / 5)
    assert found.mean_kept == 0


def test_without_causality_distance_has_no_sign():
    # Two keys 1 : 3. Row 0 spends 3/4 one ahead, row 1 spends 1/4 one back.
    found = distance(~ps.causal, [1, 3])
    assert found.bands == (
        Band(0, 0, pytest.approx(0.5), 0, 0),
        Band(1, 1, pytest.approx(0.5), pytest.approx(0.375), pytest.approx(0.75)),
    )
    assert (found.mean_dense, found.mean_kept) == (pytest.approx(0.5), 1)


def test_nothing_kept_has_no_distance():
    assert distance(ps.empty, [1, 1]).mean_kept is None


def test_a_band_without_mass_has_no_recall():
    # e^-1000 is 0: nothing is spent one key away.
    layer = weighted([1, 1])
    layer.k[0, 1] = -1000
    layer.q[0, 1] = -1
    report = analyze(ps.dense, capture_of(layer), metrics=["distance"])
    assert report.figures["distance"].bands[1] == Band(1, 1, 0, 0, None)


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 5), (4, 1), (3, 7), (7, 3)])
def test_diagonal_sums(rows, keys):
    x = torch.arange(2.0 * rows * keys).reshape(2, rows, keys)
    expected = [[sum(torch.diagonal(head, d).tolist()) for d in range(1 - rows, keys)] for head in x]
    assert _diagonal_sums(x).tolist() == expected
