"""Faults reported of nn.MultiheadAttention and its fast path (A15 to A17), and the encoder layer around it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attention_core.modules.multihead import BlockSparseMultiheadAttention

from ..inputs import normal
from . import oracle
from .pairs import pair, reference

GEN = torch.Generator().manual_seed(0)


def test_a15_per_head_masks_and_float_masks_in_eval():
    theirs, ours = (m.eval() for m in pair(16, 4, batch_first=True, dtype=torch.float64))
    x = normal(2, 8, 16, seed=0)
    mask = torch.rand(8, 8, 8, generator=GEN) < 0.5
    mask[:, range(8), range(8)] = False
    with torch.no_grad():
        got = ours(x, x, x, attn_mask=mask, average_attn_weights=False)
    wanted = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(got[0], wanted[0], rtol=0, atol=1e-12)
    for n in range(2):
        for h in range(4):
            assert torch.equal(got[1][n, h] == 0, mask[n * 4 + h])  # True is blocked, slice n * heads + h
    theirs, ours = pair(256, 8, batch_first=True, dtype=torch.float64)
    x, bias = normal(1, 10, 256, seed=1), normal(10, 10, seed=2)
    train = ours(x, x, x, attn_mask=bias)[0]
    with torch.no_grad():
        for need in (True, False):
            still = ours.eval()(x, x, x, attn_mask=bias, need_weights=need)[0]
            torch.testing.assert_close(still, train)
            wanted = theirs(x, x, x, attn_mask=bias, need_weights=need)[0]
            torch.testing.assert_close(still, wanted, rtol=0, atol=1e-12)
    learned = bias.requires_grad_()
    grad = [torch.autograd.grad(m(x, x, x, attn_mask=learned)[0].square().sum(), learned)[0] for m in (ours, theirs)]
    torch.testing.assert_close(*grad)


def test_a16_one_blocked_query_poisons_nothing():
    ours = BlockSparseMultiheadAttention(1, 1, pattern="dense", batch_first=True, block=4, dtype=torch.float64)
    x = torch.rand(4, 2, 1, generator=GEN, dtype=torch.float64).transpose(0, 1)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    i, j = torch.arange(4)[:, None], torch.arange(4)
    keep = (j == i) | (j == i - 1)
    mask = torch.zeros(4, 4, dtype=torch.float64).masked_fill(~keep, -torch.inf)
    nn.init.normal_(ours.out_proj.bias, generator=GEN)
    results = []
    for need in (True, False):
        out, weights = ours(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=need)
        assert torch.equal(out[1, 3], ours.out_proj.bias)
        if need:
            assert torch.equal(weights[1, 3], torch.zeros(4, dtype=torch.float64))
        grads = torch.autograd.grad(out[~padding].square().sum(), [*ours.parameters()])
        results.append((out, *grads))
    wanted = reference(ours, x, keep & ~padding[:, None, None])
    right = torch.autograd.grad(wanted[~padding].square().sum(), [*ours.parameters()])
    for both in zip(*results, (wanted, *right), strict=True):
        assert all(t.isfinite().all() for t in both)
        oracle.close(both[0], both[2], 1e-12)
        oracle.close(both[1], both[2], 1e-12)


@pytest.mark.parametrize("fast", [True, False])
def test_a17_no_fast_path_goes_around_the_module(fast, monkeypatch):
    torch.backends.mha.set_fastpath_enabled(fast)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 8, batch_first=True, dropout=0.0).eval()
    x = normal(4, 6, 32, seed=0, dtype=torch.float32)
    dense = layer(x)
    ours = BlockSparseMultiheadAttention(32, 8, batch_first=True, pattern="window(2, 2)", block=4)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours.eval()
    calls = []
    forward = ours.forward
    monkeypatch.setattr(ours, "forward", lambda *a, **k: calls.append(1) or forward(*a, **k))
    with torch.inference_mode():
        out = layer(x)
    assert len(calls) == 1
    torch.testing.assert_close(out, layer(x))
    hidden = layer.norm1(x + _windowed(ours, x))
    torch.testing.assert_close(out, layer.norm2(hidden + layer.linear2(torch.relu(layer.linear1(hidden)))))
    assert not torch.allclose(out, dense)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = torch.zeros(4, 6, dtype=torch.bool)
    padding[0, 4:] = True
    with torch.inference_mode():
        whole = encoder(x, src_key_padding_mask=padding)
    torch.testing.assert_close(whole, encoder(x, src_key_padding_mask=padding))


def _windowed(module, x):
    blocked = ~oracle.allowed("window(2, 2)", x.shape[1])[0]
    plain = nn.MultiheadAttention(32, 8, batch_first=True)
    plain.load_state_dict(module.state_dict())
    return plain(x, x, x, attn_mask=blocked, need_weights=False)[0]


def test_causal_encoder_layer_passes_hint_and_mask():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True, dropout=0.0)
    x, mask = normal(2, 9, 16, seed=0, dtype=torch.float32), nn.Transformer.generate_square_subsequent_mask(9)
    wanted = layer(x, src_mask=mask, is_causal=True)
    ours = BlockSparseMultiheadAttention(16, 2, batch_first=True, pattern="dense", block=4)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours
    torch.testing.assert_close(layer(x, src_mask=mask, is_causal=True), wanted)
    assert len(ours.source.latest.layout.bits) == 0  # the causal mask was named, not tabled
