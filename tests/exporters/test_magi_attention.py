"""magi_attention: the mask of its slices, by the rules of its documentation. The kernel needs CUDA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.exporters import export
from tests.exporters.consumers import anything, arrays, comes_back, compared, long_problems


def computed(file, problem):
    _, parts = arrays(file)
    assert all(part.dtype == np.int32 for part in parts.values())
    out = np.zeros((problem.q_len, problem.kv_len), int)
    for (q0, q1), (k0, k1), kind in zip(parts["q_ranges"], parts["k_ranges"], parts["attn_type_map"], strict=True):
        assert 0 <= q0 < q1 <= problem.q_len
        assert 0 <= k0 < k1 <= problem.kv_len
        piece = np.ones((q1 - q0, k1 - k0), bool)
        if kind in (1, 3):
            piece = np.tril(piece, (k1 - k0) - (q1 - q0))
        if kind in (2, 3):
            piece = np.triu(piece)
        out[q0:q1, k0:k1] += piece
    assert out.max(initial=0) <= 1, "no pair is covered twice"
    return np.broadcast_to(out > 0, (problem.heads, *out.shape))


@settings(max_examples=30, deadline=None)
@given(anything, long_problems(longest=120))
def test_slices_are_the_pattern(pattern, problem):
    file = compared("magi_attention", pattern, problem, 64, lambda f: computed(f, problem))
    assert file is None or str(file.fidelity) == "exact"
    comes_back(file, problem, computed)


def test_regular_patterns_take_few_slices():
    for text, slices in (
        ("causal", 1),
        ("dense", 1),
        ("causal & window(63, 0)", 2),
        ("window(5, 5)", 3),
        ("causal & docs", 2),
    ):
        _, parts = arrays(export(ps.parse(text), ps.Problem(4096, docs=(96, 4000)), to="magi_attention"))
        assert len(parts["attn_type_map"]) == slices


def test_heads_that_differ_are_refused():
    with pytest.raises(ps.StudioError, match="one pattern for all heads"):
        export(ps.heads({0: ps.causal, 1: ps.dense}), ps.Problem(8, heads=2), to="magi_attention")
