"""Antidiagonal scores: exact at stride 1, by hand above, and blind to the future."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.learned import Tiling, antidiagonal
from tests.learned.problems import Small, smalls


@given(smalls())
def test_stride_1_is_the_dense_block_mass(small: Small):
    scores = antidiagonal(small.q, small.k, small.tiling, stride=1, scale=0.7, lengths=small.lengths)
    for item in range(len(small.q)):
        visible = small.tiles(small.allowed(item)) > 0
        mass = small.tiles(small.attention(item, 0.7))
        assert torch.equal(torch.isfinite(scores[item, 0]), visible)
        torch.testing.assert_close(scores[item].exp().double(), mass, atol=1e-4, rtol=1e-4)


@given(smalls(unit=3), st.integers(2, 3))
def test_a_stride_samples_antidiagonals(small: Small, stride: int):
    """Group by group and pair by pair, in float64."""
    tiling, share = small.tiling, small.q.shape[1] // small.k.shape[1]
    if tiling.block[0] % stride or tiling.block[1] % stride:
        with pytest.raises(ps.StudioError, match=f"a stride must divide both block sizes, got {stride} for blocks of"):
            antidiagonal(small.q, small.k, tiling, stride=stride)
        return
    scores = antidiagonal(small.q, small.k, tiling, stride=stride, scale=1.0, lengths=small.lengths)
    for item in range(len(small.q)):
        allowed = small.allowed(item)
        products = small.q[item].double() @ small.k[item].double().repeat_interleave(share, 0).mT
        on = (torch.arange(tiling.q_len)[:, None] % stride) + (torch.arange(tiling.kv_len) % stride) == stride - 1
        pairs = allowed & on
        groups = Small(small.q, small.k, Tiling(tiling.q_len, tiling.kv_len, (stride, stride)), None)
        count = groups.tiles(pairs.double())
        mean = groups.tiles(torch.where(pairs, products, 0)) / count.clamp(min=1)
        weight = torch.softmax((mean + count.log()), -1).nan_to_num(0)
        rows = groups.tiles(allowed.any(1, keepdim=True).expand_as(allowed)).amax(-1) / min(stride, tiling.kv_len)
        mass = (weight * rows.round()[:, None]).repeat_interleave(stride, -2).repeat_interleave(stride, -1) / stride**2
        expected = small.tiles(mass[..., : tiling.q_len, : tiling.kv_len])
        visible = small.tiles(allowed) > 0
        whole = tiling.q_len % stride == 0 and tiling.kv_len % stride == 0 and small.lengths is None
        if whole:  # ragged groups are spread over tokens that are not there
            torch.testing.assert_close(
                scores[item].exp().double()[:, visible], expected[:, visible], atol=1e-4, rtol=1e-4
            )
        assert torch.equal(torch.isfinite(scores[item, 0]), visible)


def test_a_later_block_cannot_change_an_earlier_choice():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 64, 4, generator=generator) for _ in range(2))
    tiling = Tiling.of(q, k, 16)
    before = antidiagonal(q, k, tiling)
    q[:, :, 32:], k[:, :, 32:] = 100, -100
    after = antidiagonal(q, k, tiling)
    assert torch.equal(before[:, :, :2], after[:, :, :2])
    assert not torch.equal(before[:, :, 2:], after[:, :, 2:])
