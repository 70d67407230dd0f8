"""Predicted loss: against full float64 matrices, and equal to a tile's importance where one tile is left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.capture import bundled
from pattern_studio.learned import LossGradients, predicted_loss, tile_importance
from tests.learned.test_tile_importance import drawn
from tests.metrics.captures import random_captures, studies


@settings(max_examples=40)
@given(studies(), st.integers(1, 3))
def test_against_full_matrices(study, draws):
    capture, pattern, block = study
    gradients = drawn(capture, draws)
    for layer, one in capture.layers.items():
        share, n = one.heads // one.kv_heads, one.tokens
        q, k, v = one.q.double(), *(x.double().repeat_interleave(share, 0) for x in (one.k, one.v))
        scores = capture.scale * q @ k.mT
        if capture.causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        layout = ps.lower(pattern, ps.Problem(n, heads=one.heads), block=block, layer=layer)
        allowed = torch.stack([torch.from_numpy(layout.expand(head, 0, n)) for head in range(one.heads)])
        kept = scores.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num(0)
        moved, g = kept @ v - scores.softmax(-1) @ v, gradients.layers[layer]
        aimed = (g * moved).sum(-1).square().mean(0).sum(-1)
        blind = (moved.square().mean(-1) * g.square().sum(-1).mean(0)).sum(-1)
        exact = one.q.dtype == torch.float64
        found = predicted_loss(pattern, capture, gradients, layer, block)
        # float32 outputs are off by their rounding, of which little is seen where the pattern moves them much.
        near = 1e-9 if exact else 1e-4 * float(g.square().mean() * v.square().sum())
        assert found == pytest.approx(((aimed * blind).sqrt() / 2).numpy(), rel=1e-6 if exact else 1e-2, abs=near)


@given(random_captures(longest=16), st.tuples(st.integers(1, 7), st.integers(1, 7)), st.data())
def test_one_tile_left_out(capture, block, data):
    capture = type(capture)(
        {n: type(x)(x.q.double(), x.k.double(), x.v.double()) for n, x in capture.layers.items()},
        *(capture.model, capture.text, capture.tokens, capture.scale, capture.causal),
    )
    layer, gradients, n = next(iter(capture.layers)), drawn(capture, 2), len(capture.tokens)
    row = data.draw(st.integers(0, (n - 1) // block[0]))
    key = data.draw(st.integers(0, (n - 1) // block[1]))
    mask = np.ones((-(-n // block[0]), -(-n // block[1])), bool)
    mask[row, key] = False
    found = predicted_loss(ps.blocks.from_mask(mask, block), capture, gradients, layer, block)
    importance = tile_importance(capture, gradients, layer, block)[:, row, key].numpy()
    assert found == pytest.approx(importance, rel=1e-6, abs=1e-9 * (1 + importance.max()))


def test_errors():
    with pytest.raises(ps.StudioError, match=r"expected gradients of layer 7, got those of \[20\]"):
        predicted_loss(ps.causal, bundled(), LossGradients({20: torch.ones(1, 9, 1024, 64)}), 7)
