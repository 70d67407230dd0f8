"""Tiling against the dense mask, pair by pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.learned import Tiling
from tests.learned.problems import Small, smalls

CPU = torch.device("cpu")


@given(smalls())
def test_visible_tiles_hold_a_pair(small: Small):
    visible = small.tiling.visible(CPU, small.lengths)
    for item in range(len(small.q)):
        assert torch.equal(visible[min(item, len(visible) - 1)], small.tiles(small.allowed(item)) > 0)


@given(smalls())
def test_the_diagonal_holds_own_positions(small: Small):
    tiling = small.tiling
    i = torch.arange(tiling.q_len)[:, None] + tiling.offset
    own = i == torch.arange(tiling.kv_len)[None]
    diagonal = tiling.diagonal(CPU, small.lengths)
    for item in range(len(small.q)):
        expected = small.tiles(own & small.allowed(item)) > 0
        assert torch.equal(diagonal[min(item, len(diagonal) - 1)], expected)


@given(smalls(), st.integers(0, 9), st.booleans())
def test_counts_are_those_of_the_masks(small: Small, sinks: int, diagonal: bool):
    tiling = small.tiling
    kept = tiling.sinks(CPU, sinks)
    kept = kept | tiling.diagonal(CPU) if diagonal else kept
    assert tiling.counts(sinks, diagonal) == (int(tiling.visible(CPU).sum()), int(kept.sum()))


def test_a_million_tokens_are_counted_without_a_mask():
    assert Tiling(2**20, 2**20, (64, 1)).counts(sinks=4, diagonal=True) == (2**19 * (2**14 + 1), 2**20 + 2**16 - 4)


@pytest.mark.parametrize(
    ("q", "k", "words"),
    [
        (
            torch.zeros(2, 3, 4),
            torch.zeros(1, 2, 3, 4),
            r"expected q to be floating \[batch, heads, tokens, head_dim\]",
        ),
        (
            torch.zeros(1, 2, 3, 4),
            torch.zeros(2, 2, 3, 4),
            r"one batch, head_dim and device, got \[1, 2, 3, 4\] on cpu",
        ),
        (torch.zeros(1, 3, 3, 4), torch.zeros(1, 2, 3, 4), "KV heads to divide the query heads, got 2 KV heads for 3"),
    ],
)
def test_tensors_that_do_not_fit_are_an_error(q, k, words):
    with pytest.raises(ps.StudioError, match=words):
        Tiling.of(q, k, block=2)


def test_a_block_that_is_none_is_an_error():
    with pytest.raises(ps.StudioError, match="block_q must lie between 1 and 65536, got 0"):
        Tiling(4, 4, (0, 1))
    with pytest.raises(ps.StudioError, match="causal must be True or False, got 1"):
        Tiling(4, 4, (1, 1), None, 1)  # type: ignore[arg-type]
