"""Vertical and slash lines: the mask holds every tile that the pattern's lines cross, and no other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.capture import bundled
from pattern_studio.learned import Tiling, vertical_slash
from pattern_studio.metrics import analyze
from tests.learned.problems import Small, smalls


@given(smalls(padded=False), st.integers(1, 4), st.integers(1, 4))
def test_mask_and_pattern_are_one_choice(small: Small, verticals: int, slashes: int):
    tiling = small.tiling
    verticals, slashes = min(verticals, tiling.kv_len), min(slashes, tiling.q_len)
    chosen = vertical_slash(small.q, small.k, tiling, verticals=verticals, slashes=slashes, probes=5)
    mask = chosen.mask()
    for item in range(len(small.q)):
        pattern = chosen.pattern(item)
        assert ps.parse(str(pattern)) == pattern
        problem = ps.Problem(tiling.q_len, tiling.kv_len, heads=small.q.shape[1])
        pairs = torch.from_numpy(ps.dense_mask(pattern, problem))
        i, j = torch.arange(tiling.q_len)[:, None] + tiling.offset, torch.arange(tiling.kv_len)[None]
        for head in range(small.q.shape[1]):
            on = torch.isin(j, chosen.verticals[item, head]) | torch.isin(i - j, chosen.slashes[item, head])
            assert torch.equal(pairs[head], on & small.allowed(item))
            # A tile is kept whole: one that a line crosses above the diagonal alone is there if it is visible.
            assert torch.equal(mask[item, head], (small.tiles(on) > 0) & tiling.visible(torch.device("cpu"))[0])
        assert pairs.any(-1).all()


def test_it_finds_the_sharp_columns_of_layer_7():
    """Chosen by the last 64 queries, measured on all: far more than a window of as many tiles keeps."""
    layer = bundled().layers[7]
    q, k = layer.q[None].float(), layer.k[None].float()
    chosen = vertical_slash(q, k, Tiling.of(q, k, (64, 1)), verticals=64, slashes=32, scale=bundled().scale)
    found = analyze(chosen.pattern(), bundled(), layers=[7], block=(64, 1), metrics=["recall"]).recall
    window = analyze(
        ps.parse("causal & window(95, 0)"), bundled(), layers=[7], block=(64, 1), metrics=["recall"]
    ).recall
    assert found is not None
    assert window is not None
    assert found.mean > window.mean + 0.2


def test_more_lines_than_there_are():
    q = torch.zeros(1, 1, 4, 2)
    with pytest.raises(ps.StudioError, match="expected at most 4 verticals for this problem, got 5; ask for fewer"):
        vertical_slash(q, q, Tiling.of(q, q, 2), verticals=5, slashes=1)
    with pytest.raises(ps.StudioError, match="a batch item must lie between 0 and 0, got 1"):
        vertical_slash(q, q, Tiling.of(q, q, 2), verticals=1, slashes=1).pattern(1)


def test_nothing_waits_for_the_device():
    q = torch.empty(2, 2, 50, 4, device="meta")
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    chosen = vertical_slash(q, q, Tiling.of(q, q, (16, 8)), verticals=3, slashes=2, lengths=lengths)
    assert chosen.mask(lengths).shape == (2, 2, 4, 7)
