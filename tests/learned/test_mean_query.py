"""Mean queries against single keys, in float64; and it sees the columns that pooling keys hides."""

from __future__ import annotations

import torch
from hypothesis import given

from pattern_studio.capture import bundled
from pattern_studio.learned import Tiling, mean_query, pooled, top_k
from pattern_studio.metrics import block_mass
from tests.learned.problems import Small, smalls


@given(smalls())
def test_the_formula(small: Small):
    scores = mean_query(small.q, small.k, small.tiling, scale=0.7, lengths=small.lengths)
    tiling, share = small.tiling, small.q.shape[1] // small.k.shape[1]
    for item in range(len(small.q)):
        visible = small.tiles(small.allowed(item)) > 0
        assert torch.equal(torch.isfinite(scores[item, 0]), visible)
        rows = min(tiling.q_len, small.own(item) - tiling.offset)
        for row in range(tiling.q_blocks):
            mine = slice(row * tiling.block[0], min((row + 1) * tiling.block[0], rows))
            if mine.start >= rows:
                continue
            mean = small.q[item, :, mine].double().mean(1, keepdim=True)
            weight = (mean @ small.k[item].double().repeat_interleave(share, 0).mT)[:, 0] * 0.7
            weight = torch.where(small.allowed(item)[mine].any(0), weight.exp(), 0)
            total = small.tiles(weight[:, None].expand(-1, tiling.q_len, -1))[:, 0] / min(tiling.block[0], tiling.q_len)
            found = scores[item, :, row].exp().double()
            torch.testing.assert_close(found, torch.where(visible[row], total, 0), atol=1e-4, rtol=1e-3)


def test_sharp_columns_of_real_attention_are_seen():
    """Layer 7, key runs of 8, a tenth of the tiles: pooled keys lose much of the oracle's mass, single keys little."""
    layer, tiling = bundled().layers[7], Tiling(1024, 1024, (64, 8))
    q, k, mass = layer.q[None], layer.k[None], torch.from_numpy(block_mass(bundled(), 7, (64, 8)))

    def kept(scores: torch.Tensor) -> float:
        return float((mass * top_k(scores, tiling, 0.1, diagonal=False)[0]).sum(-1).mean())

    oracle, fine, coarse = kept(mass[None]), kept(mean_query(q, k, tiling)), kept(pooled(q, k, tiling))
    assert oracle - fine < 0.03
    assert oracle - coarse > 0.3
