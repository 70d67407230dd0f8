"""Layouts made from layouts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.metrics.layouts import lower_causal_part, single_head
from tests import strategies


@settings(max_examples=50, deadline=None)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_equal_their_masks(pattern, problem, block):
    layout = ps.lower(pattern, problem, block=block)
    causal_part = lower_causal_part(pattern, layout)
    triangle = np.arange(problem.kv_len) <= np.arange(problem.q_len)[:, None] + problem.offset
    for head in range(problem.heads):
        np.testing.assert_array_equal(causal_part.expand(head), layout.expand(head) & triangle)
        alone = single_head(layout, head).validate()
        np.testing.assert_array_equal(alone.expand(), layout.expand(head))
        assert alone.pairs == layout.expand(head).sum()


def test_causal_by_construction_is_not_lowered_again():
    for pattern in (ps.causal, ps.causal & ps.sink(1), ps.heads({0: ps.causal, 1: ps.sink(1) & ps.causal})):
        layout = ps.lower(pattern, q_len=8, heads=2, block=4)
        assert lower_causal_part(pattern, layout) is layout
