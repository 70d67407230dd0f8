"""Block mass by hand and against full matrices."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.metrics import block_mass, row_recall
from tests.metrics.captures import Brute, capture_of, studies, weighted


def test_block_mass_by_hand():
    # Three causal rows over equal keys, blocks of 2: row 0 and 1 spend all in block 0, row 2 spends 2/3 there.
    capture = capture_of(weighted([1] * 3), causal=True)
    assert block_mass(capture, 0, block=2).tolist() == [[[1, 0], [pytest.approx(2 / 3), pytest.approx(1 / 3)]]]


@settings(max_examples=30, deadline=None)
@given(studies())
def test_equal_full_matrices(study):
    capture, pattern, block = study
    with mock.patch.multiple("pattern_studio.metrics.chunk", CELLS=300, MAX_ROWS=5):
        for number in capture.layers:
            brute = Brute(capture, number, pattern, block)
            rows = np.minimum(block[0], brute.problem.q_len - np.arange(0, brute.problem.q_len, block[0]))
            mass = block_mass(capture, number, block)
            np.testing.assert_allclose(mass, brute.tiles(brute.dense) / rows[:, None], atol=1e-5)
            np.testing.assert_allclose(mass.sum(2), 1, rtol=1e-5)
            np.testing.assert_allclose(row_recall(pattern, capture, number, block), brute.recall, atol=1e-5)


def test_a_layer_that_is_not_there():
    with pytest.raises(ps.StudioError, match=r"expected distinct layers among the capture's \[3\], got \[0\]; choose"):
        block_mass(capture_of(weighted([1, 1]), first=3), 0)
