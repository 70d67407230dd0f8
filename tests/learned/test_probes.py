"""Lines and tile scores of the probes, pair by pair."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from pattern_studio.learned import probe_lines, probes
from tests.learned.problems import Small, smalls


@given(smalls(), st.integers(1, 30))
def test_lines_and_tiles(small: Small, count: int):
    tiling = small.tiling
    lines = probe_lines(small.q, small.k, tiling, probes=count, scale=0.7, lengths=small.lengths)
    scores = probes(small.q, small.k, tiling, probes=count, scale=0.7, lengths=small.lengths)
    i = torch.arange(tiling.q_len)[:, None] + tiling.offset
    j = torch.arange(tiling.kv_len)[None]
    for item in range(len(small.q)):
        rows = min(tiling.q_len, small.own(item) - tiling.offset)
        used = min(count, tiling.q_len, max(rows, 0))
        attention = small.attention(item, 0.7)[:, max(rows, 0) - used : max(rows, 0)]  # [heads, probes, keys]
        vertical = attention.sum(1) / max(used, 1)
        torch.testing.assert_close(lines.vertical[item].double(), vertical, atol=1e-5, rtol=1e-5)
        slash = torch.zeros(lines.slash.shape[1:], dtype=torch.float64)
        distance = (i - j)[max(rows, 0) - used : max(rows, 0)]
        inside = distance >= lines.first  # under causal attention the others hold nothing
        slash.index_add_(1, distance[inside] - lines.first, attention[:, inside] / max(used, 1))
        torch.testing.assert_close(lines.slash[item].double(), slash, atol=1e-5, rtol=1e-5)

        far = (i - j - lines.first).clamp(min=0)
        line = vertical[:, None] + torch.where(i - j >= lines.first, slash[:, far], 0)
        line = torch.where((i < small.own(item)) & (j < small.own(item)), line, 0)
        visible = small.tiles(small.allowed(item)) > 0
        expected = small.tiles(line)
        assert torch.equal(torch.isfinite(scores[item, 0]), visible)
        torch.testing.assert_close(scores[item].exp().double()[:, visible], expected[:, visible], atol=1e-4, rtol=1e-4)
