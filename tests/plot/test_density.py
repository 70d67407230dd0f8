"""Pooled pair counts against brute force, and the cases of A20."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio import StudioError, TileKind
from pattern_studio.plot import Viewport, density_map

from ..strategies import blocks, plain, problems

SINK_WINDOW = "causal & (window(512, 0) | sink(64))"


@st.composite
def views(draw, q_len: int, kv_len: int) -> Viewport | None:
    if draw(st.booleans()):
        return None
    row, key = draw(st.integers(0, q_len - 1)), draw(st.integers(0, kv_len - 1))
    return Viewport(row, draw(st.integers(row + 1, q_len)), key, draw(st.integers(key + 1, kv_len)))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_counts_are_those_of_the_expanded_mask(data):
    problem = data.draw(problems().filter(lambda p: p.q_len and p.kv_len))
    layout = ps.lower(data.draw(plain), problem, block=data.draw(blocks))
    head = data.draw(st.integers(0, problem.heads - 1))
    view = data.draw(views(problem.q_len, problem.kv_len))
    most = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    cells = density_map(layout, head, view, most)

    assert all(size <= limit for size, limit in zip(cells.pairs.shape, most, strict=True))
    rows, keys = cells.grid.rows.edges, cells.grid.keys.edges
    if view:
        assert rows[0] <= view.row_start < view.row_stop <= rows[-1]
        assert keys[0] <= view.key_start < view.key_stop <= keys[-1]
    mask = layout.expand(head)
    kinds = np.kron(layout.tile_kinds(head), np.ones(layout.block, np.uint8))[: problem.q_len, : problem.kv_len]
    partial = (kinds == TileKind.BAND) | (kinds == TileKind.BITS)
    for name, truth in (
        ("pairs", mask),
        ("full", kinds == TileKind.FULL),
        ("partial", mask & partial),
        ("reach", partial),
        ("active", kinds != TileKind.EMPTY),
    ):
        cut = truth[rows[0] : rows[-1], keys[0] : keys[-1]].astype(int)
        pooled = np.add.reduceat(np.add.reduceat(cut, rows[:-1] - rows[0], 0), keys[:-1] - keys[0], 1)
        np.testing.assert_array_equal(getattr(cells, name), pooled, name)


@given(plain, st.integers(1, 300), st.sampled_from([1, 4, 16, (16, 1), (8, 32)]), st.integers(1, 64))
@settings(max_examples=100, deadline=None)
def test_the_mean_times_the_area_is_the_number_of_pairs(pattern, length, block, most):
    layout = ps.lower(pattern, q_len=length, block=block)
    cells = density_map(layout, max_cells=most)
    assert cells.pairs.sum() == layout.pairs
    assert round(float((cells.mean * cells.grid.area).sum())) == layout.pairs


@pytest.mark.parametrize("most", [512, 1024])
def test_a20_16384_tokens(most):
    layout = ps.lower(ps.parse(SINK_WINDOW), q_len=16384, block=128)
    cells = density_map(layout, max_cells=most)
    assert max(cells.pairs.shape) <= most
    size = cells.grid.rows.size
    assert cells.mean.sum() * size * size == layout.pairs  # powers of two: exact in floating point
    assert np.triu(cells.pairs, 1).sum() == 0  # row 0 first: nothing above the diagonal


def test_a20_96000_tokens():
    layout = ps.lower(ps.parse(SINK_WINDOW), q_len=96_000, block=128)
    cells = density_map(layout, max_cells=750)
    assert cells.pairs.shape == (750, 750)
    assert (int((cells.active > 0).sum()), int((cells.full > 0).sum())) == (4485, 2244)


def test_documents_and_heads():
    pattern = ps.parse("heads({0: causal & docs, 1: dense.within(docs)})")
    layout = ps.lower(pattern, q_len=48, heads=2, docs=(10, 17, 21), block=8)
    for head in (0, 1):
        assert density_map(layout, head, max_cells=7).pairs.sum() == layout.expand(head).sum()


def test_a_million_tokens_take_about_as_long_as_few():
    def best(length: int) -> float:
        layout = ps.lower(ps.parse(SINK_WINDOW), q_len=length, block=128)
        layout.rows.line.sum()  # computed once for every layout, whatever is drawn
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            density_map(layout)
            times.append(time.perf_counter() - begin)
        return min(times)

    # 64 times as many tokens; an array of n x n would take 4096 times as long.
    assert best(2**20) < 16 * best(2**14)


def test_errors_say_what_was_expected_and_got():
    layout = ps.lower(ps.causal, q_len=64, heads=2, block=16)
    with pytest.raises(StudioError, match="expected a head from 0 to 1, got 2"):
        density_map(layout, 2)
    with pytest.raises(StudioError, match=r"part of 64 query rows and 64 keys.*rows 0 to 65"):
        density_map(layout, viewport=Viewport(0, 65, 0, 64))
    with pytest.raises(StudioError, match="got q_len 0 and kv_len 4"):
        density_map(ps.lower(ps.causal, q_len=0, kv_len=4))
    with pytest.raises(StudioError, match="most row cells"):
        density_map(layout, max_cells=0)
