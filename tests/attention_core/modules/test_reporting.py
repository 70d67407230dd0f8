"""State that tells the truth: nothing before it is measured, real bytes, real densities, free when off."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import pattern_studio as ps
from attention_core.modules.attention import BlockSparseAttention
from attention_core.modules.config import SparsePatternConfig
from attention_core.modules.factory import create_block_sparse_multihead_attention
from attention_core.modules.multihead import BlockSparseMultiheadAttention
from attention_core.modules.plan_cache import PlanCache
from pattern_studio.errors import StudioError

from ..inputs import normal
from . import oracle


def module(density: float = 0.5) -> BlockSparseMultiheadAttention:
    return create_block_sparse_multihead_attention(
        16, 2, density, "local_window", block_size=16, plan_cache=PlanCache()
    )


def test_nothing_is_known_before_it_is_measured():
    attention, x = module(), normal(2, 128, 16, seed=0, dtype=torch.float32)
    stats = attention.get_performance_stats()
    assert stats == {
        "forwards": 0,
        "avg_forward_time_ms": None,
        "token_density": None,
        "block_density": None,
        "avg_speedup": None,
        "quality_score": None,
        "plan_hits": 0,
        "plan_misses": 0,
    }
    assert attention.get_memory_info()["theoretical_speedup"] is None
    attention(x, x, x, need_weights=False)
    stats = attention.get_performance_stats()
    assert stats["forwards"] == 0  # off by default
    assert stats["avg_forward_time_ms"] is None
    layout = ps.lower(*[attention.sparse_config.choose(ps.Problem(128), False)[0]], q_len=128, block=16)
    assert stats["block_density"] == layout.tiles() / 64
    assert stats["token_density"] == layout.pairs / 128**2
    assert (stats["plan_hits"], stats["plan_misses"]) == (0, 1)


def test_times_are_measured_while_enabled_and_logged():
    attention, x = module(), normal(2, 64, 16, seed=0, dtype=torch.float32)
    seen = []
    attention.performance_monitor.on_forward(seen.append)
    attention.performance_monitor.enable()
    wanted, *_ = [attention(x, x, x, need_weights=False)[0] for _ in range(3)]
    stats = attention.get_performance_stats()
    assert stats["forwards"] == len(seen) == 3
    assert stats["avg_forward_time_ms"] == pytest.approx(1e3 * sum(f.seconds for f in seen) / 3)
    assert all(f.seconds > 0 and (f.q_len, f.kv_len) == (64, 64) for f in seen)
    attention.performance_monitor.disable()
    assert torch.equal(attention(x, x, x, need_weights=False)[0], wanted)
    assert attention.get_performance_stats()["forwards"] == 3
    attention.performance_monitor.reset()
    assert attention.get_performance_stats()["avg_forward_time_ms"] is None
    for clone in (copy.deepcopy(attention), pickle.loads(pickle.dumps(module()))):
        clone.performance_monitor.enable()
        clone(x, x, x)
        assert clone.get_performance_stats()["forwards"] == 1


def test_measured_quality_is_the_mass_that_is_kept():
    attention = BlockSparseAttention("window(3, 3)", block=8, plan_cache=PlanCache())
    q, k, v = (normal(2, 2, 40, 8, seed=n) for n in range(3))
    padding = torch.zeros(2, 40, dtype=torch.bool)
    padding[1, 30:] = True
    stats = attention.measure(q, k, v, key_padding_mask=padding, repeats=1)
    dense = oracle.allowed("dense", 40)[None] & ~padding[:, None, None]
    weights = ((q @ k.mT) / 8**0.5).exp() * dense
    kept = (weights * oracle.allowed("window(3, 3)", 40)).sum(-1) / weights.sum(-1)
    assert stats["quality_score"] == pytest.approx(float(kept.mean()), rel=1e-9)
    assert stats["avg_speedup"] > 0
    assert attention.plan_cache.info().kept == 1  # the dense run has a cache of its own
    mine = module()
    x = normal(2, 64, 16, seed=0, dtype=torch.float32)
    assert 0 < mine.measure(x, x, x, repeats=1)["quality_score"] < 1
    mine.set_density(1.0)
    assert mine.measure(x, x, x, repeats=1)["quality_score"] == pytest.approx(1, abs=1e-6)


def test_density_can_be_changed_between_calls():
    attention, x = module(0.5), normal(1, 128, 16, seed=0, dtype=torch.float32)
    densities = []
    for change in (lambda: None, lambda: attention.set_density(0.25), lambda: attention.set_sparsity_ratio(0.7)):
        change()
        attention(x, x, x, need_weights=False)
        densities.append(attention.get_performance_stats()["block_density"])
        assert densities[-1] <= attention.sparse_config.sparsity_ratio < densities[-1] + 2 / 8
    assert densities[1] < densities[0] < densities[2]
    with pytest.raises(StudioError, match=r"above 0 and up to 1, got 1\.2"):
        attention.set_density(1.2)
    fixed = BlockSparseAttention("causal & window(3, 0)")
    assert fixed.sparse_config is None
    with pytest.raises(StudioError, match=r"this module's pattern is causal & window\(3, 0\), which has no budget"):
        fixed.set_density(0.1)
    fixed.set_pattern(SparsePatternConfig(density=0.5))
    fixed.set_density(0.1)
    assert fixed.sparse_config.density == 0.1


def test_bytes_are_those_that_are_held():
    attention, x = module(), normal(1, 128, 16, seed=0, dtype=torch.float32)
    empty = attention.get_memory_info()
    assert empty["parameter_bytes"] == 4 * (3 * 16 * 16 + 3 * 16 + 16 * 16 + 16)
    assert (empty["plan_bytes"], empty["pattern_cache_size"]) == (0, 0)
    attention(x, x, x, need_weights=False)
    plan = attention.source.latest
    tensors = [t for t in vars(plan.runs).values() if isinstance(t, torch.Tensor)]
    full = attention.get_memory_info()
    assert full["plan_bytes"] >= sum(t.numel() * t.element_size() for t in tensors)
    assert full["pattern_cache_size"] == 1
    assert full["theoretical_speedup"] == 1 / attention.get_performance_stats()["block_density"]
    before = full["plan_bytes"]
    _ = plan.by_query  # made later, counted then
    assert attention.get_memory_info()["plan_bytes"] > before
    attention.plan_cache.clear()
    assert attention.get_memory_info()["plan_bytes"] == 0
