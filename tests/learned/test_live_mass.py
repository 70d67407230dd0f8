"""live_mass against the analyzer's block mass of the same q and k, and by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pattern_studio.learned import Tiling, live_mass
from pattern_studio.metrics.maps import block_mass
from tests.metrics.captures import random_captures


@settings(max_examples=30, deadline=None)
@given(random_captures(), st.sampled_from([(1, 1), (4, 2), (3, 8), (16, 16)]))
def test_what_the_analyzer_says_of_a_capture(capture, block):
    for number, layer in capture.layers.items():
        tiling = Tiling(layer.tokens, layer.tokens, block, causal=capture.causal)
        found = live_mass(layer.q[None], layer.k[None], tiling, scale=capture.scale)[0]
        told = torch.from_numpy(block_mass(capture, number, block)).float()
        torch.testing.assert_close(found, told, rtol=0, atol=2e-6)  # both sum in float32


@pytest.mark.parametrize("q_len", [1, 3])
def test_last_queries_of_longer_keys(q_len):
    q, k = torch.zeros(1, 2, q_len, 4), torch.zeros(1, 1, 5, 4)
    found = live_mass(q, k, Tiling(q_len, 5, (1, 5)), scale=1.0)
    torch.testing.assert_close(found, torch.ones(1, 2, q_len, 1))
