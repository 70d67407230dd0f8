"""to_pattern: the mask's own tiles, as text that reads back, for any offset."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.capture import bundled
from pattern_studio.learned import SCORES, Tiling, to_pattern, top_k
from pattern_studio.metrics import block_mass, row_recall
from tests.learned.problems import Small, smalls


@given(smalls(padded=False), st.floats(0.2, 1), st.integers(0, 7))
def test_it_shows_the_mask(small: Small, density: float, offset: int):
    q_len, kv_len, block = small.tiling.q_len, small.tiling.kv_len, small.tiling.block
    tiling = Tiling(q_len, kv_len, block, offset, small.tiling.causal)
    if not tiling.counts(0, False)[0]:
        return
    scores = SCORES["pooled"](small.q, small.k, tiling)
    mask = top_k(scores, tiling, density, sinks=0, diagonal=False)
    pattern = to_pattern(mask[0], block, causal=tiling.causal, q_offset=offset)
    assert ps.parse(str(pattern)) == pattern
    layout = ps.lower(pattern, q_len=q_len, kv_len=kv_len, q_offset=offset, heads=small.q.shape[1], block=block)
    for head in range(small.q.shape[1]):
        np.testing.assert_array_equal(layout.tile_kinds(head) > 0, mask[0, head].numpy())


@pytest.mark.parametrize("block", [(16, 16), (64, 8), (64, 1)])
def test_its_measured_recall_is_the_mass_of_its_tiles(block):
    """On real attention: the pattern's recall by rows, and the block mass under the mask, are one number."""
    layer = bundled().layers[20]
    q, k = layer.q[None].float(), layer.k[None].float()
    tiling = Tiling.of(q, k, block)
    mask = top_k(SCORES["probes"](q, k, tiling), tiling, 0.25)
    mass = (block_mass(bundled(), 20, block) * mask[0].numpy()).sum(2).mean()
    recall = row_recall(to_pattern(mask[0], block), bundled(), 20, block).mean()
    assert mass == pytest.approx(recall, abs=1e-5)


def test_another_shape_or_dtype_is_an_error():
    with pytest.raises(ps.StudioError, match=r"expected one item's mask as bool .*, got \[1, 2, 2, 2\] bool; take one"):
        to_pattern(torch.zeros(1, 2, 2, 2, dtype=torch.bool), 16)
    with pytest.raises(ps.StudioError, match=r"got \[1, 2, 2\] float32"):
        to_pattern(torch.zeros(1, 2, 2), 16)
