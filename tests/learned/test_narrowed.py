"""Narrowed: which tiles masks leave, what scores and choices make of them, pair by pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pattern_studio import StudioError
from pattern_studio.learned import BlockGate, Narrowed, Tiling, live_mass, mean_query, top_k, top_p
from tests.learned.problems import Small, smalls

CPU = torch.device("cpu")


def drawn(small: Small, seed: int, with_pairs: bool) -> Narrowed:
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) < 0.7

    batch, heads, q_len = small.q.shape[:3]
    pairs = some(batch, heads, q_len, small.tiling.kv_len) if with_pairs else None
    return Narrowed(some(batch, small.tiling.kv_len), some(batch, q_len), pairs)


def table(small: Small, narrowed: Narrowed) -> torch.Tensor:
    """Allowed pairs, said once more: bool [batch, heads, q_len, kv_len]."""
    batch, heads = small.q.shape[:2]
    mask = torch.stack([small.allowed(item) for item in range(batch)])[:, None].repeat(1, heads, 1, 1)
    for item in range(batch):
        mask[item, :, :, ~narrowed.keys[item]] = False
        mask[item, :, ~narrowed.rows[item]] = False
    return mask if narrowed.pairs is None else mask & narrowed.pairs


@given(smalls(padded=False), st.integers(0, 2**31), st.booleans())
def test_visible_tiles_hold_an_allowed_pair(small: Small, seed: int, with_pairs: bool):
    narrowed, tiling = drawn(small, seed, with_pairs), small.tiling
    wanted = small.tiles(table(small, narrowed)) > 0
    assert torch.equal(narrowed.visible(tiling).expand_as(wanted), wanted)
    height = small.tiles(narrowed.rows[:, None, :, None].repeat(1, 1, 1, tiling.kv_len))[:, 0, :, 0]
    assert torch.equal(narrowed.height(tiling, CPU).double(), (height / min(tiling.block[1], tiling.kv_len)).round())
    for chosen in (
        top_p(torch.zeros(wanted.shape), tiling, 1.0, narrowed=narrowed),
        top_k(torch.zeros(wanted.shape), tiling, 1.0, narrowed=narrowed),
    ):
        assert torch.equal(chosen, wanted)


@given(smalls(padded=True, unit=2), st.integers(0, 2**31))
def test_lengths_are_one_kind_of_it(small: Small, seed: int):
    narrowed = Narrowed.of_lengths(small.lengths, small.tiling)
    gate = BlockGate(small.q.shape[1], small.k.shape[1], small.q.shape[3], small.tiling.block)
    reach = {"causal": small.tiling.causal, "q_offset": small.tiling.offset}
    mine, theirs = (
        gate(small.q, small.k, **reach, **one) for one in ({"lengths": small.lengths}, {"narrowed": narrowed})
    )
    assert torch.equal(mine, theirs)
    kept = {"sinks": 1, "diagonal": False}
    mine, theirs = (
        top_k(mine, small.tiling, 0.5, **kept, **one) for one in ({"lengths": small.lengths}, {"narrowed": narrowed})
    )
    assert torch.equal(mine, theirs)


@given(smalls(padded=False, unit=2), st.integers(0, 2**31), st.booleans())
def test_what_takes_no_part_is_not_read(small: Small, seed: int, with_pairs: bool):
    narrowed = drawn(small, seed, with_pairs)
    gate = BlockGate(small.q.shape[1], small.k.shape[1], small.q.shape[3], small.tiling.block)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).view_as(parameter))
    other_q = torch.where(narrowed.rows[:, None, :, None], small.q, torch.nan)
    other_k = torch.where(narrowed.keys[:, None, :, None], small.k, torch.nan)
    reach = {"causal": small.tiling.causal, "q_offset": small.tiling.offset, "narrowed": narrowed}
    assert torch.equal(gate(small.q, small.k, **reach), gate(other_q, other_k, **reach))
    mine, theirs = (
        mean_query(q, k, small.tiling, narrowed=narrowed) for q, k in ((small.q, small.k), (other_q, other_k))
    )
    assert torch.equal(mine, theirs)
    assert torch.equal(torch.isfinite(mine), narrowed.visible(small.tiling).expand_as(mine))


@given(smalls(padded=False), st.integers(0, 2**31), st.booleans())
def test_live_mass_under_masks(small: Small, seed: int, with_pairs: bool):
    narrowed = drawn(small, seed, with_pairs)
    allowed = table(small, narrowed)
    share = small.q.shape[1] // small.k.shape[1]
    scores = small.q.double() @ small.k.double().repeat_interleave(share, 1).mT * 0.7
    mass = scores.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num(0)
    rows = narrowed.height(small.tiling, CPU).clamp(min=1)[:, None, :, None]
    found = live_mass(small.q, small.k, small.tiling, scale=0.7, narrowed=narrowed)
    torch.testing.assert_close(found.double(), small.tiles(mass) / rows, atol=1e-5, rtol=1e-4)


def test_sinks_are_an_items_first_keys():
    narrowed = Narrowed(keys=torch.tensor([[False] * 3 + [True] * 5, [True] * 8]))
    tiling = Tiling(8, 8, (8, 2))
    chosen = top_k(torch.zeros(2, 1, 1, 4), tiling, 0.01, sinks=1, diagonal=False, narrowed=narrowed)
    assert chosen[:, 0, 0].int().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_what_it_refuses():
    with pytest.raises(
        StudioError, match=r"keys must be bool with 2 dimensions, True takes part, got torch.int64 \[3\]"
    ):
        Narrowed(keys=torch.arange(3))
