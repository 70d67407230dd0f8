"""The gate: its formula in float64, gradients to every parameter, budgets, padding, nothing read from the future."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

import pattern_studio as ps
from pattern_studio.learned import SCORES, BlockGate, Tiling
from pattern_studio.learned.gate import largest_divisor
from tests.learned.problems import Small, smalls


def gate_for(small: Small, *, pool=None, seed: int | None = None) -> BlockGate:
    gate = BlockGate(small.q.shape[1], small.k.shape[1], small.q.shape[3], small.tiling.block, pool=pool, scale=0.7)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for parameter in gate.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return gate


def reach(small: Small) -> dict:
    return {"causal": small.tiling.causal, "q_offset": small.tiling.offset, "lengths": small.lengths}


@given(smalls(unit=2))
def test_the_formula(small: Small):
    """Single keys and pools of two queries, pair of pools by pair, in float64."""
    gate, tiling, share = gate_for(small, pool=(2, 1), seed=0), small.tiling, small.q.shape[1] // small.k.shape[1]
    found = gate(small.q, small.k, **reach(small))
    for item in range(len(small.q)):
        visible = small.tiles(small.allowed(item)) > 0
        assert torch.equal(torch.isfinite(found[item, 0]), visible)
        rows, keys = min(tiling.q_len, small.own(item) - tiling.offset), min(tiling.kv_len, small.own(item))
        for head in range(gate.heads):
            total = torch.zeros(visible.shape, dtype=torch.float64)
            k = small.k[item, head // share, :keys].double()
            told = k + k @ gate.key[head].double()
            for begin in range(0, rows, 2):
                end = min(begin + 2, rows)
                q = small.q[item, head, begin:end].double().mean(0)
                last = end - 1 + tiling.offset
                apart = (last - torch.arange(keys)).abs().double()
                first = (torch.arange(keys) == 0).double()
                near = torch.stack([(apart + 1).log2() / 8, (-apart / 16).exp(), (-apart / 128).exp(), first], -1)
                scores = 0.7 * told @ (q + q @ gate.query[head].double()) + k @ gate.column[head].double()
                scores = scores + near @ gate.distance[head].double()
                if tiling.causal:
                    scores = scores.masked_fill(torch.arange(keys) > last, -torch.inf)
                mass = torch.softmax(scores, 0) * (end - begin)
                total[begin // tiling.block[0]].index_add_(0, torch.arange(keys) // tiling.block[1], mass)
            total = total / total.sum(-1, keepdim=True).clamp(min=1e-9)
            torch.testing.assert_close(found[item, head].exp().double(), total, atol=1e-4, rtol=1e-3)


@given(smalls(unit=2))
def test_untrained_it_is_the_content_score(small: Small):
    """With pools as large as the query block and parameters at 0: mean_query, as shares of each row."""
    if small.lengths is not None:
        return
    gate = gate_for(small, pool=(small.tiling.block[0], 1))
    score = SCORES["mean_query"](small.q, small.k, small.tiling, scale=0.7)
    found = gate(small.q, small.k, **reach(small))
    torch.testing.assert_close(found.exp(), torch.softmax(score, -1).nan_to_num(0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("block", [(32, 32), (32, 8), (32, 1)])
def test_gradients_reach_every_value_of_every_parameter(block):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 100, 8, generator=generator) for heads in (4, 2))
    gate = BlockGate(4, 2, 8, block)
    log_mass = gate(q, k)
    weight = torch.rand(log_mass.shape, generator=generator)
    torch.where(torch.isfinite(log_mass), log_mass * weight, 0).sum().backward()
    for name, parameter in gate.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).all(), name


def test_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randn(1, heads, 9, 3, generator=generator) for heads in (2, 1))
    gate = gate_for(Small(q, k, Tiling(9, 9, (4, 2)), None), pool=(2, 1), seed=2)

    def loss() -> torch.Tensor:
        log_mass = gate(q, k)
        return torch.where(torch.isfinite(log_mass), log_mass, 0).sum()

    loss().backward()
    for parameter in gate.parameters():
        assert parameter.grad is not None
        at = (0,) * parameter.dim()
        with torch.no_grad():
            parameter[at] += 1e-2
            up = float(loss())
            parameter[at] -= 2e-2
            down = float(loss())
            parameter[at] += 1e-2
        assert (up - down) / 2e-2 == pytest.approx(float(parameter.grad[at]), rel=2e-2, abs=2e-3)


@given(smalls(padded=True, unit=2))
def test_padding_is_not_read(small: Small):
    lengths = small.lengths
    assert lengths is not None
    gate = gate_for(small, seed=0)
    found = gate(small.q, small.k, **reach(small))
    padding = (torch.arange(small.tiling.q_len) >= lengths[:, None])[:, None, :, None]
    poisoned = gate(small.q.masked_fill(padding, math.nan), small.k.masked_fill(padding, math.nan), **reach(small))
    assert torch.equal(found, poisoned)
    for item, length in enumerate(lengths.tolist()):
        if length:
            q, k = small.q[item : item + 1, :, :length], small.k[item : item + 1, :, :length]
            alone = gate(q, k, causal=small.tiling.causal)
            part = found[item : item + 1, :, : alone.shape[2], : alone.shape[3]]
            torch.testing.assert_close(part, alone, atol=1e-4, rtol=1e-4)


def test_the_budget_is_kept_and_the_predicted_mass_is_reached():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 128, 8, generator=generator) * 3 for heads in (4, 2))
    gate = BlockGate(4, 2, 8, (16, 8))
    visible = int(gate.tiling(q, k).visible(q.device).sum())
    assert (gate.choose(q, k, density=0.35).sum((2, 3)) == math.floor(0.35 * visible)).all()
    mask = gate.choose(q, k, quality_threshold=0.9, diagonal=False)
    assert ((gate(q, k).exp() * mask).sum(-1) >= 0.9 - 1e-6).all()
    flat = gate.choose(q, k, quality_threshold=0.9, diagonal=False, temperature=4)
    sharp = gate.choose(q, k, quality_threshold=0.9, diagonal=False, temperature=0.25)
    assert sharp.sum() < mask.sum() < flat.sum()
    assert mask.dtype == torch.bool


def test_a_later_block_cannot_change_an_earlier_choice():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 64, 4, generator=generator) for _ in range(2))
    gate = BlockGate(1, 1, 4, 16)
    before = gate(q, k)
    q[:, :, 32:], k[:, :, 32:] = 100, -100
    assert torch.equal(before[:, :, :2], gate(q, k)[:, :, :2])


def test_nothing_waits_for_the_device():
    gate = BlockGate(4, 2, 8, (16, 8)).to("meta")
    q, k = (torch.empty(2, heads, 70, 8, device="meta") for heads in (4, 2))
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    for amount in ({"density": 0.5}, {"quality_threshold": 0.9}):
        assert gate.choose(q, k, lengths=lengths, **amount).shape == (2, 4, 5, 9)


def test_state_is_saved_and_loaded():
    gate = gate_for(Small(torch.zeros(1, 2, 4, 3), torch.zeros(1, 1, 4, 3), Tiling(4, 4, (2, 2)), None), seed=0)
    other = BlockGate(2, 1, 3, 2)
    other.load_state_dict(gate.state_dict())
    assert set(gate.state_dict()) == {"query", "key", "column", "distance"}
    assert all(torch.equal(a, b) for a, b in zip(gate.parameters(), other.parameters(), strict=True))


def test_errors():
    q = torch.zeros(1, 2, 8, 4)
    gate = BlockGate(2, 2, 4, 4)
    with pytest.raises(ps.StudioError, match="give either density or quality_threshold, got None and None"):
        gate.choose(q, q)
    with pytest.raises(ps.StudioError, match=r"a temperature is a number above 0, got 0; 1 is as trained"):
        gate.choose(q, q, density=1.0, temperature=0)
    with pytest.raises(ps.StudioError, match=r"heads, KV heads and head_dim \(2, 2, 4\), got \(2, 1, 4\)"):
        gate(q, q[:, :1])
    with pytest.raises(ps.StudioError, match=r"a pool must divide the block, got pools of \(3, 1\) tokens"):
        BlockGate(2, 2, 4, 4, pool=(3, 1))
    with pytest.raises(ps.StudioError, match="KV heads to divide the query heads, got 2 KV heads for 3"):
        BlockGate(3, 2, 4, 4)
    assert largest_divisor(7, 3) == 1
