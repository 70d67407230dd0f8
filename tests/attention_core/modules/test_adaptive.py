"""The adaptive module: exact under its own choice, apart for each item, and a gate that learns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attention_core import (
    AdaptiveBlockSparseMultiheadAttention,
    BlockSparseMultiheadAttention,
    create_adaptive_sparse_multihead_attention,
)
from pattern_studio import StudioError
from pattern_studio.learned import Narrowed

from .pairs import projected


def module(**options) -> AdaptiveBlockSparseMultiheadAttention:
    torch.manual_seed(0)
    made = AdaptiveBlockSparseMultiheadAttention(32, 4, **({"block": (8, 4), "density": 0.5} | options))
    with torch.no_grad():  # sharp enough that choices differ
        made.in_proj_weight.mul_(3)
    return made


def tokens(length: int = 45, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("causal", [True, False])
def test_all_tiles_are_nn_multihead_attention(causal):
    ours, theirs = module(density=None, quality_threshold=1.0), nn.MultiheadAttention(32, 4, batch_first=True)
    missing = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert all(name.startswith("gate.") for name in missing.missing_keys)
    assert not missing.unexpected_keys
    x = tokens()
    mask = nn.Transformer.generate_square_subsequent_mask(45) if causal else None
    want, _ = theirs(x, x, x, attn_mask=mask, need_weights=False)
    got, weights = ours(x, x, x, is_causal=causal)
    assert weights is None
    torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_exact_under_its_choice(causal):
    ours, x = module().double(), tokens().double()
    q, k, v = projected(ours, x)
    tiles, _ = ours._choose(q, k, causal, None)
    allowed = tiles.repeat_interleave(8, 2).repeat_interleave(4, 3)[:, :, :45, :45]
    if causal:
        allowed = allowed & torch.ones(45, 45, dtype=torch.bool).tril()
    scores = (q @ k.mT * ours.head_dim**-0.5).masked_fill(~allowed, -torch.inf)
    want = ours.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    got, _ = ours(x, x, x, is_causal=causal)
    torch.testing.assert_close(got, want)
    for mine, theirs in zip(
        torch.autograd.grad(got.square().sum(), [ours.in_proj_weight, ours.out_proj.weight]),
        torch.autograd.grad(want.square().sum(), [ours.in_proj_weight, ours.out_proj.weight]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_an_item_is_the_same_alone():
    ours, x = module(), tokens(batch=3)
    together, _ = ours(x, x, x, is_causal=True)
    for n in range(3):
        alone, _ = ours(x[n : n + 1], x[n : n + 1], x[n : n + 1], is_causal=True)
        torch.testing.assert_close(together[n : n + 1], alone, atol=2e-6, rtol=1e-5)


def test_what_it_keeps_is_measured():
    ours, x = module(), tokens()
    kept = ours.measured(x, x, is_causal=True)
    q, k, _ = projected(ours, x)
    tiles, _ = ours._choose(q, k, True, None)
    causal = torch.ones(45, 45, dtype=torch.bool).tril()
    scores = (q.double() @ k.double().mT * ours.head_dim**-0.5).masked_fill(~causal, -torch.inf)
    recall = (scores.softmax(-1) * tiles.repeat_interleave(8, 2).repeat_interleave(4, 3)[:, :, :45, :45]).sum(-1)
    assert kept.recall == pytest.approx(recall.mean().item(), abs=1e-5)
    assert kept.recall_p1 == pytest.approx(torch.quantile(recall, 0.01).item(), abs=1e-4)
    visible = sum(len(range(0, min(row + 8, 45), 4)) for row in range(0, 45, 8))
    assert kept.block_density == pytest.approx(tiles.sum().item() / (8 * visible))
    assert kept.block_density <= 0.5
    everything = module(density=None, quality_threshold=1.0).measured(x, x)
    assert (everything.recall, everything.block_density) == pytest.approx((1, 1), abs=1e-5)


def test_a_temperature_keeps_more_and_is_the_gates_own():
    ours, x = module(density=None, quality_threshold=0.7, temperature=1.0), tokens()
    kept = []
    for temperature in (0.5, 1.0, 3.0):
        ours.temperature = temperature
        kept.append(ours.measured(x, is_causal=True))
        q, k, _ = projected(ours, x)
        wanted = ours.gate.choose(q, k, quality_threshold=0.7, temperature=temperature)
        assert torch.equal(ours._choose(q, k, True, None)[0], wanted)
    assert kept[0].recall < kept[1].recall < kept[2].recall
    assert kept[0].block_density < kept[1].block_density < kept[2].block_density
    assert create_adaptive_sparse_multihead_attention(32, 4, temperature=1.5).temperature == 1.5


def test_the_gate_learns_and_only_the_gate():
    ours, x = module(), tokens(64)
    optimizer = torch.optim.Adam(ours.gate.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = ours.gate_loss(x, x, is_causal=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in ours.gate.parameters())
    assert ours.in_proj_weight.grad is None


def test_the_guides_name_and_the_lengths_first():
    assert create_adaptive_sparse_multihead_attention(32, 4, batch_first=False).quality_threshold == 0.95
    first, second = module(), module(batch_first=False)
    x = tokens()
    turned = x.transpose(0, 1)
    torch.testing.assert_close(second(turned, turned, turned)[0].transpose(0, 1), first(x, x, x)[0])


def test_cast_to_half_precision():
    ours, x = module().to(torch.bfloat16), tokens().to(torch.bfloat16)
    out, _ = ours(x, x, x, is_causal=True)
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()


def test_what_it_refuses():
    ours, x = module(), tokens()
    with pytest.raises(StudioError, match=r"query must have 32 features, got 31"):
        ours(x[..., :31], x, x)
    with pytest.raises(StudioError, match="give either quality_threshold or density, got None and None"):
        AdaptiveBlockSparseMultiheadAttention(32, 4)
    with pytest.raises(StudioError, match="a temperature is a number above 0, got 0; 1 is as trained"):
        module(temperature=0)
    with pytest.raises(StudioError, match=r"segment_lengths and dilation_rates fix a pattern.*leave them out"):
        create_adaptive_sparse_multihead_attention(32, 4, segment_lengths=[1024], dilation_rates=[1])
    with pytest.raises(StudioError, match="always chooses its tiles from content; for a pattern make a Block"):
        ours.set_adaptive(False)
    with pytest.raises(StudioError, match="takes no pattern, got causal; make a BlockSparseMultiheadAttention"):
        ours.set_pattern("causal")
    with pytest.raises(StudioError, match=r"document lengths must add up to kv_len 45, got sums of \[44\]"):
        ours(x, docs=[20, 24])
    with pytest.raises(StudioError, match="docs must be one list of lengths or one for each of 2 items, got 3"):
        ours(x, docs=[[45]] * 3)
    with pytest.raises(StudioError, match="document lengths must be at least 0"):
        ours(x, docs=[50, -5])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("budget", [{"density": None, "quality_threshold": 0.6}, {"density": 0.5}])
def test_documents_are_a_mask_that_keeps_them_apart(causal, budget):
    ours, x = module(**budget).double(), tokens().double()
    packed = [[20, 0, 25], [7, 30, 8]]
    number = torch.tensor([[0] * 20 + [2] * 25, [0] * 7 + [1] * 30 + [2] * 8])
    apart = number[:, :, None] != number[:, None]
    apart = (apart | torch.ones(45, 45).triu(1).bool()) if causal else apart
    q, k, v = projected(ours, x)
    tiles, _ = ours._choose(q, k, causal, Narrowed(docs=number))
    allowed = tiles.repeat_interleave(8, 2).repeat_interleave(4, 3)[:, :, :45, :45] & ~apart[:, None]
    assert 0 < allowed.sum() < (~apart).sum() * 4  # some pairs of documents are not chosen
    scores = (q @ k.mT * ours.head_dim**-0.5).masked_fill(~allowed, -torch.inf)
    want = ours.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    got, weights = ours(x, docs=packed, is_causal=causal, need_weights=True, average_attn_weights=False)
    torch.testing.assert_close(got, want)
    assert not weights[~allowed].any()
    got, _ = ours(x, docs=torch.tensor(packed), is_causal=causal)
    torch.testing.assert_close(got, want)
    # A first key of every document is protected, so with an own sink the recall is that of the chosen alone.
    kept = ours.measured(x, docs=packed, is_causal=causal)
    dense = (q @ k.mT * ours.head_dim**-0.5).masked_fill(apart[:, None], -torch.inf).softmax(-1)
    assert kept.recall == pytest.approx((dense * allowed).sum(-1).mean().item(), abs=1e-5)
    loss = ours.gate_loss(x, docs=packed, is_causal=causal)
    assert loss > 0
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.gate.parameters())


def test_documents_that_fit_the_tiles_equal_running_alone():
    ours, x = module(density=None, quality_threshold=0.5).double(), tokens(48, 1).double()
    with torch.no_grad():  # a gate that has learned: every feature counts
        for p in ours.gate.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(2), dtype=p.dtype) * 0.3)
    together, _ = ours(x, docs=[16, 32], is_causal=True)
    assert ours.get_performance_stats()["block_density"] < 1
    for part in (slice(0, 16), slice(16, 48)):
        alone, _ = ours(x[:, part].clone(), is_causal=True)
        torch.testing.assert_close(together[:, part], alone)
    fixed = BlockSparseMultiheadAttention(32, 4, batch_first=True, pattern="causal", block=8, dtype=torch.float64)
    fixed.set_adaptive(quality_threshold=0.5)
    together, _ = fixed(x, x, x, docs=[16, 32], is_causal=True, need_weights=False)
    for part in (slice(0, 16), slice(16, 48)):
        own = x[:, part].clone()
        torch.testing.assert_close(together[:, part], fixed(own, own, own, is_causal=True, need_weights=False)[0])


def test_documents_with_padding():
    ours, x = module(density=None, quality_threshold=0.5).double(), tokens(48, 1).double()
    padding = torch.arange(48)[None] >= 40
    out, _ = ours(x, docs=[16, 24, 8], key_padding_mask=padding, is_causal=True)
    alone, _ = ours(x[:, :40].clone(), docs=[16, 24], is_causal=True)
    torch.testing.assert_close(out[:, :40], alone)
    torch.testing.assert_close(out[:, 40:], ours.out_proj.bias.expand(1, 8, -1))


def test_the_budget_can_change_and_is_reported():
    ours, x = module(), tokens()
    assert ours.get_performance_stats()["block_density"] is None
    visible = sum(len(range(0, min(row + 8, 45), 4)) for row in range(0, 45, 8))
    for density in (0.5, 0.8):
        ours.set_density(density)
        ours(x, is_causal=True)
        kept = ours.get_performance_stats()["block_density"] * 6 * 12
        assert kept == pytest.approx(int(density * visible))
        assert ours.get_memory_info()["theoretical_speedup"] == pytest.approx(72 / kept)
    ours.set_adaptive(quality_threshold=0.9)
    assert (ours.density, ours.quality_threshold) == (None, 0.9)
    found = ours.measure(x, x, x, is_causal=True, repeats=1)
    assert found["quality_score"] == pytest.approx(ours.measured(x, is_causal=True).recall, abs=1e-6)
    assert found["avg_speedup"] > 0
