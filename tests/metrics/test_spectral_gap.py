"""Spectral gaps of graphs whose eigenvalues are known."""

from __future__ import annotations

import numpy as np
import pytest

from pattern_studio.metrics.spectral_gap import spectral_gap


def test_a_ring_with_loops():
    # Each of n on a ring sees itself and both neighbours: eigenvalues (1 + 2 cos(2 pi k / n)) / 3.
    n = 12
    ring = np.eye(n, dtype=bool) | np.roll(np.eye(n, dtype=bool), 1, 1) | np.roll(np.eye(n, dtype=bool), -1, 1)
    values = np.abs((1 + 2 * np.cos(2 * np.pi * np.arange(1, n) / n)) / 3)
    assert spectral_gap(ring) == pytest.approx(1 - values.max())


@pytest.mark.parametrize("relation", [np.zeros((2, 2), bool), np.ones((1, 1), bool), np.tri(4, dtype=bool)])
def test_none_where_it_means_nothing(relation):
    assert spectral_gap(relation) is None
