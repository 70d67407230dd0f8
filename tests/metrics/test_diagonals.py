"""Pairs by diagonal against the dense mask."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.metrics.diagonals import diagonal_counts
from tests import strategies


def test_by_hand():
    # Two queries at positions 1 and 2 of three keys, the causal ones: {0, 1} and {0, 1, 2}; key - row is 0, 1 and
    # -1, 0, 1.
    assert diagonal_counts(ps.lower(ps.causal, q_len=2, kv_len=3, block=2)).tolist() == [[1, 2, 2, 0]]


@settings(max_examples=30, deadline=None)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_equals_the_dense_mask(pattern, problem, block):
    layout = ps.lower(pattern, problem, block=block)
    with mock.patch("pattern_studio.metrics.diagonals.CELLS", 1):  # parts of one mask
        counts = diagonal_counts(layout)
    mask = ps.dense_mask(pattern, problem, block=block)
    for head, group in enumerate(layout.head_group):
        lines = range(1 - problem.q_len, problem.kv_len)
        assert counts[group].tolist() == [mask[head].trace(c) for c in lines]


def test_a_long_window_costs_runs_only():
    counts = diagonal_counts(ps.lower(ps.causal & ps.window(63, 0), q_len=2**18, block=128))[0]
    near = counts[2**18 - 64 : 2**18]
    np.testing.assert_array_equal(near, 2**18 - np.arange(63, -1, -1))
    assert counts.sum() == near.sum()
