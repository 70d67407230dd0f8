"""Pooled scores against means computed tile by tile in float64."""

from __future__ import annotations

import math

import torch
from hypothesis import given

from pattern_studio.learned import Tiling, pooled
from tests.learned.problems import Small, smalls


@given(smalls())
def test_the_formula(small: Small):
    scores = pooled(small.q, small.k, small.tiling, scale=0.7, lengths=small.lengths)
    tiling, (block_q, block_k) = small.tiling, small.tiling.block
    share = small.q.shape[1] // small.k.shape[1]
    for item in range(len(small.q)):
        rows, keys = min(tiling.q_len, small.own(item) - tiling.offset), min(tiling.kv_len, small.own(item))
        visible = small.tiles(small.allowed(item)) > 0
        assert torch.equal(torch.isfinite(scores[item, 0]), visible)
        for head in range(small.q.shape[1]):
            for row, key in visible.nonzero().tolist():
                mine = small.q[item, head, row * block_q : min((row + 1) * block_q, rows)].double().mean(0)
                theirs = small.k[item, head // share, key * block_k : min((key + 1) * block_k, keys)].double()
                expected = 0.7 * float(mine @ theirs.mean(0)) + math.log(len(theirs))
                assert math.isclose(float(scores[item, head, row, key]), expected, rel_tol=1e-4, abs_tol=1e-4)


def test_half_precision_and_autocast_sum_in_float32():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 100, 16, generator=generator).bfloat16() for _ in range(2))
    tiling = Tiling.of(q, k, (16, 8))
    expected = pooled(q.double(), k.double(), tiling)
    with torch.autocast("cpu", torch.bfloat16):
        found = pooled(q, k, tiling)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
