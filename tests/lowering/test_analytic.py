"""Lowering against the dense oracle, on random trees of everything the language has."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.columns import ALL, BAND, NONE, Scope, Strips
from pattern_studio.lowering import from_mask
from tests import strategies


@settings(max_examples=400)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_expanded_layout_equals_predicate(pattern, problem, block):
    layout = ps.lower(pattern, problem, block=block).validate()
    mask = ps.dense_mask(pattern, problem, block=block)
    for head in range(problem.heads):
        np.testing.assert_array_equal(layout.expand(head), mask[head])


@settings(max_examples=150)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_tiles_and_counts_equal_the_oracles(pattern, problem, block):
    layout = ps.lower(pattern, problem, block=block)
    mask = ps.dense_mask(pattern, problem, block=block)
    oracle = from_mask(mask, problem, block).validate()
    for kind in (None, ps.TileKind.FULL):
        assert layout.tiles(kind) == oracle.tiles(kind)
    assert layout.tile_pairs == oracle.tile_pairs
    assert layout.pairs == mask.sum()
    assert layout.empty_rows == (~mask.any(2)).sum()
    counts = layout.group_row_counts[layout.head_group]
    np.testing.assert_array_equal(counts, mask.sum(2))


@settings(max_examples=150)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_columns_are_the_transpose_of_rows(pattern, problem, block):
    layout = ps.lower(pattern, problem, block=block)

    def tiles(runs, lines):
        found = {}
        for n, (start, length, kind, ref) in enumerate(zip(runs.start, runs.length, runs.kind, runs.ref, strict=True)):
            for tile in range(start, start + length):
                found[int(runs.line[n]) // max(lines, 1), int(runs.line[n]) % max(lines, 1), tile] = (kind, ref)
        return found

    rows = tiles(layout.rows, layout.q_blocks)
    columns = tiles(layout.columns, layout.kv_blocks)
    assert {(g, j, i): v for (g, i, j), v in rows.items()} == columns
    assert len(columns) == layout.columns.length.sum()


@settings(max_examples=150)
@given(strategies.trees, strategies.problems(heads=2), strategies.blocks)
def test_column_states_never_lie(pattern, problem, block):
    first = np.arange(0, problem.q_len, block[0])
    last = np.minimum(first + block[0], problem.q_len) - 1
    strips = Strips(
        first + problem.offset, last + problem.offset, np.zeros_like(first), np.full_like(first, problem.kv_len)
    )
    columns = pattern.columns(strips, Scope(problem.kv_len, problem.doc_ends, block))
    mask = ps.dense_mask(pattern, problem, block=block)[0]
    told = np.full((len(first), problem.kv_len), NONE)
    for n in range(len(columns)):
        assert columns.start[n] < columns.stop[n]
        stretch = (columns.strip[n], slice(columns.start[n], columns.stop[n]))
        assert (told[stretch] == NONE).all()
        told[stretch] = columns.state[n]
        if columns.state[n] == BAND:
            distance = np.arange(columns.start[n], columns.stop[n]) - np.arange(
                strips.first[columns.strip[n]], strips.last[columns.strip[n]] + 1
            ).reshape(-1, 1)
            band = (distance >= columns.lo[n]) & (distance <= columns.hi[n])
            rows = slice(first[columns.strip[n]], last[columns.strip[n]] + 1)
            np.testing.assert_array_equal(band, mask[rows, stretch[1]])
            assert band.any(0).all()
            assert not band.all(0).any()
    for n in range(len(first)):
        rows = mask[first[n] : last[n] + 1]
        assert rows[:, told[n] == ALL].all()
        assert not rows[:, told[n] == NONE].any()


def test_window_stays_three_runs_a_row_at_every_key_block():
    pattern = ps.causal & ps.window(999, 0)
    for block_k in (1, 8, 128):
        layout = ps.lower(pattern, q_len=64_000, block=(128, block_k))
        assert len(layout.rows.start) <= 3 * layout.q_blocks
        assert len(layout.bits) == 0


def test_equal_heads_share_one_group():
    assert ps.lower(ps.causal, q_len=256, heads=32, block=64).groups == 1
    mixed = ps.heads({range(0, 31): ps.causal, 31: ps.dense})
    layout = ps.lower(mixed, q_len=256, heads=32, block=64)
    assert layout.groups == 2
    assert layout.tiles() == 31 * 10 + 16
