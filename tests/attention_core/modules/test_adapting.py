"""set_adaptive on the drop-in: tiles from content without more parameters, its budget, its state, on and off."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from attention_core import BlockSparseMultiheadAttention, create_block_sparse_multihead_attention
from pattern_studio import StudioError

from . import oracle


def module(density: float = 0.3, **options) -> BlockSparseMultiheadAttention:
    torch.manual_seed(0)
    made = create_block_sparse_multihead_attention(32, 4, density, block_size=(16, 8), dtype=torch.float64, **options)
    with torch.no_grad():
        made.in_proj_weight.mul_(3)
    return made


def tokens(length: int = 100) -> torch.Tensor:
    return torch.randn(2, length, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_it_keeps_more_of_the_attention_than_the_pattern_and_goes_back():
    ours, x = module(), tokens()
    state = {name: value.clone() for name, value in ours.state_dict().items()}
    static, _ = ours(x, x, x, need_weights=False)
    before = ours.measure(x, x, x, repeats=1)["quality_score"]
    ours.enable_adaptive_sparsity(True)
    assert ours.adaptive
    assert list(ours.state_dict()) == list(state)
    after = ours.measure(x, x, x, repeats=1)
    assert after["quality_score"] > before + 0.05
    assert after["block_density"] <= 0.3
    ours.enable_adaptive_sparsity(False)
    assert not ours.adaptive
    assert torch.equal(ours(x, x, x, need_weights=False)[0], static)


def test_its_budget_is_the_modules_own():
    ours, x = module(), tokens()
    ours.set_adaptive()
    ours.set_sparsity_ratio(0.5)
    assert ours.sparse_config.density == 0.5
    ours(x, x, x, need_weights=False)
    assert 0.45 < ours.get_performance_stats()["block_density"] <= 0.5
    ours.set_adaptive(quality_threshold=1.0)
    dense = BlockSparseMultiheadAttention(32, 4, batch_first=True, pattern="dense", block=16, dtype=torch.float64)
    dense.load_state_dict(ours.state_dict())
    for causal in (True, False):
        out, weights = ours(x, x, x, is_causal=causal)
        wanted, theirs = dense(x, x, x, is_causal=causal)
        oracle.close(out, wanted, 1e-10)
        oracle.close(weights, theirs, 1e-10)
    fixed = BlockSparseMultiheadAttention(32, 4, batch_first=True, pattern="causal", block=16, dtype=torch.float64)
    fixed.set_adaptive(density=0.4)
    fixed.set_density(0.6)
    fixed(x, x, x, need_weights=False)
    assert fixed.get_performance_stats()["block_density"] > 0.5


def test_short_inputs_get_smaller_tiles():
    ours, x = module(0.2), tokens(24)
    ours.set_adaptive()
    ours(x, x, x, need_weights=False)
    assert ours._chosen.block < (16, 8)
    assert ours.get_performance_stats()["block_density"] <= 0.2


def test_gradients_dropout_and_copies():
    ours, x = module(dropout=0.5), tokens()
    ours.set_adaptive()
    torch.manual_seed(3)
    first, _ = ours(x, x, x, need_weights=False)
    torch.manual_seed(3)
    assert torch.equal(ours(x, x, x, need_weights=False)[0], first)
    assert not torch.equal(ours(x, x, x, need_weights=False)[0], first)
    first.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in ours.parameters())
    ours.eval()
    wanted = ours(x, x, x, need_weights=False)[0]
    for clone in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert clone.adaptive
        assert torch.equal(clone(x, x, x, need_weights=False)[0], wanted)


def test_what_it_refuses():
    fixed = BlockSparseMultiheadAttention(32, 4, batch_first=True, pattern="causal & window(3, 0)", block=16)
    with pytest.raises(StudioError, match=r"causal & window\(3, 0\), which has no budget to keep; say density=0\.25"):
        fixed.set_adaptive()
    with pytest.raises(StudioError, match=r"density lies above 0 and up to 1, got 1\.5"):
        fixed.set_adaptive(density=1.5)
    with pytest.raises(StudioError, match=r"give either quality_threshold or density, got 0\.9 and 0\.5"):
        fixed.set_adaptive(density=0.5, quality_threshold=0.9)
    more = BlockSparseMultiheadAttention(32, 4, batch_first=True, pattern="dense", add_zero_attn=True)
    more.set_adaptive(density=0.5)
    x = tokens().float()
    with pytest.raises(StudioError, match=r"don't take the keys that add_bias_kv .* or call set_adaptive\(False\)"):
        more(x, x, x)
    fixed.set_adaptive(density=0.5)
    with pytest.raises(StudioError, match=r"document lengths must add up to kv_len \d+, got sums of \[7\]"):
        fixed(x, x, x, docs=[3, 4])
