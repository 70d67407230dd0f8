"""Importance of tiles: against really leaving each tile out in float64, and what by_distance does to a fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pattern_studio.capture import Capture
from pattern_studio.learned import LossGradients, Tiling, fit_blocks, mean_by_distance, tile_importance
from tests.learned.test_fit_blocks import kinds, part
from tests.metrics.captures import random_captures


def drawn(capture: Capture, draws: int, seed: int = 0) -> LossGradients:
    """Gradients at random, as large as the layers' outputs."""
    generator = torch.Generator().manual_seed(seed)
    return LossGradients(
        {n: torch.randn(draws, *x.q.shape, generator=generator, dtype=torch.float64) for n, x in capture.layers.items()}
    )


def brute(capture: Capture, gradients: LossGradients, layer: int, block: tuple[int, int]) -> torch.Tensor:
    """Each tile really left out of full float64 matrices, the softmax taken anew over what is left."""
    one = capture.layers[layer]
    share, n = one.heads // one.kv_heads, one.tokens
    q, k, v = one.q.double(), *(x.double().repeat_interleave(share, 0) for x in (one.k, one.v))
    scores = capture.scale * q @ k.mT
    if capture.causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    dense, g = scores.softmax(-1) @ v, gradients.layers[layer].double()
    out = torch.zeros(one.heads, -(-n // block[0]), -(-n // block[1]), dtype=torch.float64)
    for row in range(out.shape[1]):
        rows = slice(row * block[0], (row + 1) * block[0])
        for key in range(out.shape[2]):
            cut = scores[:, rows].clone()
            cut[..., key * block[1] : (key + 1) * block[1]] = -torch.inf
            moved = cut.softmax(-1).nan_to_num(0) @ v - dense[:, rows]
            aimed = (g[:, :, rows] * moved).sum(-1).square().mean(0).sum(-1)
            blind = (moved.square().sum(-1) * g[:, :, rows].square().sum(-1).mean(0)).sum(-1) / v.shape[-1]
            out[:, row, key] = (aimed * blind).sqrt() / 2
    return out


@settings(max_examples=40)
@given(random_captures(longest=24), st.tuples(st.integers(1, 7), st.integers(1, 7)), st.integers(1, 3))
def test_as_if_each_tile_were_left_out(capture, block, draws):
    gradients = drawn(capture, draws)
    for layer in capture.layers:
        found, expected = tile_importance(capture, gradients, layer, block), brute(capture, gradients, layer, block)
        exact = found.dtype == torch.float64
        assert exact == (capture.layers[layer].q.dtype == torch.float64)
        scale = float(expected.max())
        near = {"rtol": 1e-6, "atol": 1e-7 * scale} if exact else {"rtol": 1e-2, "atol": 1e-4 * scale}
        torch.testing.assert_close(found.double(), expected, **near)


def test_what_no_row_sees_and_what_the_loss_does_not_mind_has_none():
    capture = part(range(0, 96))
    gradients = drawn(capture, 2)
    gradients.layers[7][:, 3] = 0
    found = tile_importance(capture, gradients, 7, (32, 8))
    visible = Tiling(96, 96, (32, 8)).visible(torch.device("cpu"))[0]
    assert not found[3].any()
    assert not found[:, ~visible].any()
    assert (found[0][visible] > 0).all()


@given(st.integers(1, 40), st.tuples(st.integers(1, 7), st.integers(1, 7)), st.booleans(), st.booleans())
def test_the_mean_of_each_distance(tokens, block, causal, protect):
    tiling = Tiling(tokens, tokens, block, None, causal)
    device = torch.device("cpu")
    visible = tiling.visible(device)[0]
    kept = tiling.sinks(device, 1)[0] if protect else torch.zeros_like(visible)
    importance = torch.rand(2, *visible.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = mean_by_distance(importance * visible, tiling, kept)
    for row, key in zip(*np.nonzero(visible.numpy()), strict=True):
        alike = [
            (a, b)
            for a, b in zip(*np.nonzero((visible & ~kept).numpy()), strict=True)
            if a * block[0] - b * block[1] == row * block[0] - key * block[1]
        ]
        mean = sum(importance[:, a, b] for a, b in alike) / max(len(alike), 1)
        torch.testing.assert_close(found[:, row, key], mean * torch.ones(2, dtype=torch.float64))
    assert not found[:, ~visible].any()


def test_a_fit_by_loss_takes_the_heads_that_the_loss_minds():
    capture = part(range(0, 192))
    gradients = drawn(capture, 1)
    for layer, one in gradients.layers.items():
        one[:, (layer == 7) * 4 :] *= 0.01  # layer 7: heads 4 and on; layer 20: all of them
    found = fit_blocks(capture, 0.45, (32, 8), gradients=gradients, diagonal=True)
    mass = fit_blocks(capture, 0.45, (32, 8), diagonal=True)
    assert found.tiles == found.tiles_allowed == mass.tiles
    assert min(found.density[7][:4]) > max(found.density[7][4:] + found.density[20])
    assert found.fit.mean < mass.fit.mean
    own = Tiling(192, 192, (32, 8)).diagonal(torch.device("cpu"))[0].numpy()
    for layer in capture.layers:
        mask = kinds(found, capture, layer)
        assert mask[:, own].all()
        assert mask[:, :, 0].all()


def test_by_distance_chooses_diagonals_and_keeps_budget_and_floors():
    capture = part(range(0, 256))
    found = fit_blocks(capture, 0.3, (32, 8), gradients=drawn(capture, 2), by_distance=1, diagonal=True)
    assert found.method == "diagonals"
    assert found.tiles == found.tiles_allowed
    whole, cut = 0, 0
    for layer in capture.layers:
        for mask in kinds(found, capture, layer):
            assert mask[:, 0].all()
            for away in range(0, mask.shape[1], 4):  # tiles of 8 keys that start `away` of them before the query block
                line = [bool(mask[row, 4 * row - away]) for row in range(len(mask)) if 4 * row - away > 0]
                whole, cut = whole + (len(set(line)) <= 1), cut + (len(set(line)) > 1)
    # Ties are cut where a floor or the budget ends inside a diagonal.
    assert cut < whole
    held = fit_blocks(capture, 0.3, (32, 8), by_distance=1, held_out=part(range(512, 768)))
    free = fit_blocks(capture, 0.3, (32, 8), held_out=part(range(512, 768)))
    assert held.fit.mean < free.fit.mean
    assert held.held_out is not None
    assert free.held_out is not None
    assert held.fit.mean - held.held_out.mean < free.fit.mean - free.held_out.mean


def test_gradients_of_another_text_are_refused():
    capture = part(range(0, 64))
    with pytest.raises(ValueError, match=r"expected gradients \[draws, 9, 64, 64\] in layer 7"):
        fit_blocks(capture, 0.5, 16, gradients=drawn(part(range(0, 32)), 1))
    with pytest.raises(ValueError, match=r"by_distance is a share of a tile's worth from 0 to 1, got 2; 0\.5 is usual"):
        fit_blocks(capture, 0.5, 16, by_distance=2)
