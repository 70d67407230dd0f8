"""Densities and tile counts, by hand and against the dense oracle."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.lowering import from_mask
from pattern_studio.metrics import layout_stats
from tests import strategies


def test_every_field_by_hand():
    # window(1, 0) on 3 queries at positions 1, 2, 3 over 4 keys: {0, 1}, {1, 2}, {2, 3}.
    # Tiles of 2 x 2: row block 0 (positions 1, 2) reaches keys 0-1 and 2; row block 1 only keys 2-3.
    stats = layout_stats(ps.window(1, 0), ps.Problem(3, 4, heads=2), block=2)
    assert stats.as_dict() == {
        "pattern": "window(1, 0)",
        "hash": ps.window(1, 0).hash,
        "q_len": 3,
        "kv_len": 4,
        "q_offset": 1,
        "block": [2, 2],
        "heads": 2,
        "pairs": 12,
        "density": {"token": 12 / 24, "token_of_causal": 12 / 18, "block": 6 / 8},
        "tiles": {"total": 8, "active": 6, "full": 2, "partial": 4},  # the ragged last tile is full
        "block_efficiency": 12 / 20,
        "empty_rows": 0,
    }
    json.dumps(stats.as_dict(), allow_nan=False)


@pytest.mark.parametrize(("block", "active", "total"), [(128, 1, 1), (32, 7, 16), (16, 12, 49)])
def test_a7_packed_documents(block, active, total):
    problem = ps.Problem(100, docs=(10, 10, 20, 20, 20, 20))
    stats = layout_stats(ps.causal & ps.docs, problem, block)
    assert stats.pairs == 950
    assert stats.density.token == pytest.approx(1 - 0.905)
    assert (stats.tiles.active, stats.tiles.total) == (active, total)
    assert stats.density.block == active / total
    assert all(0 <= value <= 1 for value in vars(stats.density).values())


def test_pairs_outside_the_triangle_do_not_count_as_causal():
    stats = layout_stats(ps.dense, ps.Problem(4), block=2)
    assert stats.density.token_of_causal == 1
    above = layout_stats(~ps.causal, ps.Problem(4), block=2)
    assert (above.pairs, above.density.token_of_causal) == (6, 0)


def test_heads_and_layers_are_resolved():
    pattern = ps.heads({0: ps.causal, 1: ps.layers({7: ps.empty, 8: ps.dense})})
    assert layout_stats(pattern, ps.Problem(4, heads=2), 2, layer=7).pairs == 10
    assert layout_stats(pattern, ps.Problem(4, heads=2), 2, layer=7).empty_rows == 4
    assert layout_stats(pattern, ps.Problem(4, heads=2), 2, layer=8).density.token_of_causal == 1


@pytest.mark.parametrize("lengths", [(0, 0), (0, 5), (5, 0)])
def test_nothing_to_measure_gives_none(lengths):
    stats = layout_stats(ps.dense, ps.Problem(*lengths), 2)
    assert vars(stats.density) == {"token": None, "token_of_causal": None, "block": None}
    assert stats.block_efficiency is None
    assert stats.empty_rows == lengths[0]


def test_empty_pattern_and_empty_triangle():
    stats = layout_stats(ps.empty, ps.Problem(4), 2)
    assert (stats.density.token, stats.block_efficiency, stats.empty_rows) == (0, None, 4)
    before = layout_stats(ps.dense, ps.Problem(2, 3, q_offset=-2), 2)
    assert (before.density.token, before.density.token_of_causal) == (1, None)


def test_a_million_tokens_cost_runs_only():
    stats = layout_stats(ps.parse("causal & (window(63, 0) | sink(4))"), ps.Problem(2**20), 128)
    # Row i keeps min(i + 1, 64) keys of the window and of the 4 sinks those before it.
    assert stats.pairs == 64 * 2**20 - 64 * 63 // 2 + 4 * (2**20 - 64) - (3 + 2 + 1)


@settings(max_examples=80, deadline=None)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_equals_the_dense_oracle(pattern, problem, block):
    stats = layout_stats(pattern, problem, block)
    mask = ps.dense_mask(pattern, problem, block=block)
    i = np.arange(problem.q_len)[:, None] + problem.offset
    triangle = np.broadcast_to(np.arange(problem.kv_len) <= i, mask.shape)
    oracle = from_mask(mask, problem, block)
    assert stats.pairs == mask.sum()
    assert stats.density.token == (mask.mean() if mask.size else None)
    assert stats.density.token_of_causal == (mask[triangle].sum() / triangle.sum() if triangle.any() else None)
    assert stats.tiles.active == oracle.tiles()
    assert stats.tiles.full == oracle.tiles(ps.TileKind.FULL)
    assert stats.tiles.partial == stats.tiles.active - stats.tiles.full
    assert stats.block_efficiency == (mask.sum() / oracle.tile_pairs if oracle.tile_pairs else None)
    assert stats.empty_rows == (~mask.any(2)).sum()
