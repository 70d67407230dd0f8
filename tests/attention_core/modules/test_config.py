"""Patterns by budget: what the guide's options mean, and that a length gets its pattern whatever came before."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

import pattern_studio as ps
from attention_core.modules.attention import BlockSparseAttention
from attention_core.modules.config import PATTERN_TYPES, SparsePatternConfig
from attention_core.modules.factory import create_block_sparse_multihead_attention
from attention_core.modules.multihead import BlockSparseMultiheadAttention
from attention_core.modules.plan_cache import PlanCache
from pattern_studio.errors import StudioError

from ..inputs import normal
from . import oracle


@pytest.mark.parametrize("family", [f for f in PATTERN_TYPES if f != "longnet"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_budget_is_kept_and_used_up(family, causal):
    problem = ps.Problem(2048)
    more = {"global_tokens": 64} if family == "global_local" else {}
    pattern, block = SparsePatternConfig(family, density=0.3, block_size=64, **more).choose(problem, causal)
    frame = ps.causal if causal else ps.dense
    layout, whole = (ps.lower(p, problem, block=block) for p in (pattern, frame))
    assert ps.lower(pattern - frame, problem, block=block).pairs == 0
    assert layout.empty_rows == 0
    # Never more, and less by under two tiles a query block: both sides of a bidirectional pattern grow in turns.
    assert 0.3 * whole.tiles() - 2 * layout.q_blocks < layout.tiles() <= 0.3 * whole.tiles()


def test_short_inputs_take_finer_tiles_then_say_so():
    config = SparsePatternConfig("local_window", density=0.25, block_size=128)
    assert config.choose(ps.Problem(4096), True)[1] == (128, 128)
    pattern, block = config.choose(ps.Problem(100), True)
    assert block[0] < 128
    layout, whole = (ps.lower(p, q_len=100, block=block) for p in (pattern, ps.causal))
    assert layout.tiles() <= 0.25 * whole.tiles()
    with pytest.raises(StudioError, match="for inputs this short set dense_up_to=4"):
        config.choose(ps.Problem(4), True)
    tiny = SparsePatternConfig("local_window", density=0.25, dense_up_to=8)
    assert tiny.choose(ps.Problem(8), True)[0] == ps.causal
    assert tiny.choose(ps.Problem(8), False)[0] == ps.dense
    assert tiny.choose(ps.Problem(9), True)[0] != ps.causal


def test_sparsity_ratio_is_the_fraction_kept():
    config = SparsePatternConfig("dilated_sparse", sparsity_ratio=0.1)
    assert config == SparsePatternConfig("dilated_sparse", density=0.1)
    assert config.sparsity_ratio == config.density == 0.1
    assert config.with_density(0.2).density == 0.2
    assert config.hash == SparsePatternConfig(density=0.1).hash != config.with_density(0.2).hash
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(StudioError, match=r"density 0\.1 and sparsity_ratio 0\.2 are two names for the fraction kept"):
        SparsePatternConfig(density=0.1, sparsity_ratio=0.2)
    with pytest.raises(FrozenInstanceError):
        config.density = 0.5


def test_segments_and_rates_are_longnets():
    config = SparsePatternConfig(segment_lengths=[8, 16], dilation_rates=[1, 2], block_size=8)
    assert config.pattern_type == "longnet"
    pattern, _ = config.choose(ps.Problem(64, heads=2), causal=False)
    assert pattern == ps.heads({h: ps.longnet((8, 16), (1, 2), offset=h) for h in range(2)})
    attention = BlockSparseAttention(config, block=8)
    q, k, v = (normal(1, 2, 64, 8, seed=n) for n in range(3))
    text = "causal & heads({0: longnet((8, 16), (1, 2)), 1: longnet((8, 16), (1, 2), offset=1)})"
    oracle.close(
        attention(q, k, v, is_causal=True), oracle.attention(q, k, v, oracle.allowed(text, 64, heads=2)), 1e-10
    )


@pytest.mark.parametrize(
    ("size", "causal", "text"),
    [(5, True, "causal & window(4, 0)"), (5, False, "window(2, 2)"), (6, False, "window(3, 2)")],
)
def test_a_window_in_tokens(size, causal, text):
    config = SparsePatternConfig("local_window", local_window_size=size)
    assert str(config.choose(ps.Problem(64), causal)[0]) == text
    globals_ = SparsePatternConfig("global_local", local_window_size=size, global_tokens=3)
    wanted = ps.parse(f"({text}) | globals(rows=(range(0, 3),), cols=(range(0, 3),))")
    wanted = wanted & ps.causal if causal else wanted
    found = globals_.choose(ps.Problem(64), causal)[0]
    assert ps.lower(found ^ wanted, q_len=64).pairs == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "density is the share of tiles that is kept, above 0 and up to 1, got None"),
        ({"density": 0}, "above 0 and up to 1, got 0"),
        ({"density": 1.5}, r"above 0 and up to 1, got 1\.5"),
        ({"density": True}, "got True"),
        ({"pattern_type": "windowed", "density": 0.1}, "pattern_type must be one of local_window, dilated_sparse"),
        ({"pattern_type": "adaptive", "density": 0.1}, "use create_adaptive_sparse_multihead_attention"),
        ({"pattern_type": "local_window", "density": 0.1, "global_tokens": 4}, "local_window has no global_tokens"),
        ({"density": 0.1, "local_window_size": 4}, "dilated_sparse has no local_window_size"),
        ({"density": 0.1, "dilation_rates": (0,)}, "one of dilation_rates must lie between 1"),
        ({"density": 0.1, "dilation_rates": 4}, "dilation_rates takes whole numbers"),
        ({"density": 0.1, "block_size": 0}, "block_q must lie between 1"),
        ({"segment_lengths": (4, 8)}, "longnet takes segment_lengths and dilation_rates"),
        ({"segment_lengths": (4, 8), "dilation_rates": (1,)}, "one rate for each, got 2 and 1"),
        ({"segment_lengths": (4,), "dilation_rates": (1,), "density": 0.1}, "both a density and lengths that fix it"),
        ({"pattern_type": "local_window", "local_window_size": 9, "density": 0.1}, "both a density and lengths"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(options, text):
    with pytest.raises(StudioError, match=text):
        SparsePatternConfig(**options)


def test_a_short_batch_changes_nothing_for_a_long_one():
    x = normal(1, 700, 16, seed=0, dtype=torch.float32)

    def run(lengths: list[int]) -> torch.Tensor:
        torch.manual_seed(0)
        attention = create_block_sparse_multihead_attention(16, 2, 0.25, block_size=32, plan_cache=PlanCache())
        outs = [attention(x[:, :n], x[:, :n], x[:, :n], need_weights=False)[0] for n in lengths]
        return outs[-1]

    assert torch.equal(run([700]), run([40, 100, 700]))


def test_factory_makes_the_drop_in():
    attention = create_block_sparse_multihead_attention(
        embed_dim=64, num_heads=4, sparsity_ratio=0.25, pattern_type="dilated_sparse", dropout=0.1, kdim=8, vdim=8
    )
    assert isinstance(attention, BlockSparseMultiheadAttention)
    assert isinstance(attention, nn.MultiheadAttention)
    assert attention.batch_first
    assert (attention.dropout, attention.kdim) == (0.1, 8)
    assert create_block_sparse_multihead_attention(64, 4).sparse_config.density == 0.25
    longnet = create_block_sparse_multihead_attention(64, 4, segment_lengths=[8, 16], dilation_rates=[1, 2])
    assert longnet.sparse_config.pattern_type == "longnet"
    assert longnet.sparse_config.density is None
    named = inspect.signature(create_block_sparse_multihead_attention).parameters
    assert [*named][:4] == ["embed_dim", "num_heads", "density", "pattern_type"]


def test_causal_calls_spend_the_budget_in_the_triangle():
    attention = create_block_sparse_multihead_attention(
        16, 2, 0.25, "local_window", block_size=16, plan_cache=PlanCache()
    )
    x = normal(1, 256, 16, seed=0, dtype=torch.float32)
    attention(x, x, x, need_weights=False, is_causal=True)
    layout = attention.source.latest.layout
    triangle = ps.lower(ps.causal, q_len=256, block=16, heads=2).tiles()
    assert layout.block == (16, 16)
    assert 0.25 * triangle - 2 * 16 < layout.tiles() <= 0.25 * triangle
    attention(x, x, x, need_weights=False)
    assert attention.source.latest.layout.tiles() > 0.9 * 0.25 * 2 * 256
