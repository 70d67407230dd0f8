"""Every primitive drawn by hand: rows are queries, columns keys, # allowed."""

from __future__ import annotations

import numpy as np
import pytest

import pattern_studio as ps

DRAWN = {
    "dense": "#### #### #### ####",
    "empty": ".... .... .... ....",
    "causal": "#... ##.. ###. ####",
    "window(1, 0)": "#... ##.. .##. ..##",
    "window(0, 2)": "###. .### ..## ...#",
    "dilated(1, 1, rate=2)": "#.#. .#.# #.#. .#.#",
    "dilated(2, 0, rate=3)": "#..... .#.... ..#... #..#.. .#..#. ..#..#",
    "strided(3)": "#..#. .#..# ..#.. #..#. .#..#",
    "chunk(2)": "##... ##... ..##. ..##. ....#",
    "sink(2)": "##.. ##.. ##.. ##..",
    "globals(rows=(1,), cols=(0, 3))": "#..# #### #..# #..#",
    "globals(rows=(range(2, 4),))": ".... .... #### ####",
    "rect(range(1, 3), range(2, 4))": ".... ..## ..## ....",
    "blocks((2, 1), ((0, 3), (range(1, 3),)))": "#..# #..# .##. .##.",
    "causal & window(1, 0) | sink(1)": "#... ##.. ###. #.##",
    "~causal": ".### ..## ...# ....",
    "causal - window(1, 0)": ".... .... #... ##..",
    "window(1, 1) ^ causal": ".#.. ..#. #..# ##..",
    "sink(1) >> 2": "..#. ..#. ..#. ..#.",
    "causal.T": "#### .### ..## ...#",
    "sink(1).T": "#### .... .... ....",
    "(sink(1) >> 1).T": ".... #### .... ....",
}


@pytest.mark.parametrize("text", DRAWN)
def test_drawn_by_hand(text):
    want = np.array([[c == "#" for c in row] for row in DRAWN[text].split()])
    pattern, n = ps.parse(text), len(want)
    np.testing.assert_array_equal(ps.dense_mask(pattern, ps.Problem(n))[0], want)
    np.testing.assert_array_equal(ps.lower(pattern, q_len=n, block=(2, 1)).expand(), want)


def test_documents_and_within_differ_only_in_positions():
    problem = ps.Problem(8, docs=(3, 0, 5))
    same = ps.dense_mask(ps.docs, problem)[0]
    assert same[:3, :3].all()
    assert same[3:, 3:].all()
    assert same.sum() == 9 + 25
    inside = ps.dense_mask(ps.sink(1).within(ps.docs), problem)[0]
    assert np.flatnonzero(inside[0]).tolist() == [0]
    assert np.flatnonzero(inside[7]).tolist() == [3]
    absolute = ps.dense_mask(ps.sink(1) & ps.docs, problem)[0]
    assert not absolute[7].any()


def test_heads_and_layers_resolve():
    pattern = ps.heads({0: ps.dense, range(1, 3): ps.layers({0: ps.causal, 1: ps.empty})})
    assert pattern.resolve(0, 0) == ps.dense
    assert pattern.resolve(2, 0) == ps.causal
    assert pattern.resolve(2, 1) == ps.empty
    with pytest.raises(ps.StudioError, match="head 3 has no pattern in heads"):
        ps.lower(pattern, q_len=4, heads=4, layer=0)
    with pytest.raises(ps.StudioError, match="say which one"):
        ps.lower(pattern, q_len=4, heads=3)
    with pytest.raises(ps.StudioError, match=r"take one with \.resolve\(head="):
        pattern.allows(np.array(0), np.array(0))


def test_random_is_a_draw_without_replacement_and_nested_in_k():
    problem = ps.Problem(40)
    previous = np.zeros((40, 40), bool)
    for k in (1, 3, 10, 39, 40, 50):
        mask = ps.dense_mask(ps.random(k, seed=5), problem)[0]
        assert (mask.sum(1) == min(k, 40)).all()
        assert not (previous & ~mask).any()
        previous = mask
    past = ps.dense_mask(ps.random(3, seed=5, past=True), problem)[0]
    assert not (past & ~np.tri(40, dtype=bool)).any()
    np.testing.assert_array_equal(past.sum(1), np.minimum(np.arange(40) + 1, 3))


def test_random_draws_are_even():
    mask = ps.dense_mask(ps.random(8, seed=2), ps.Problem(2000, 100, 0))[0]
    hits = mask.sum(0)  # 160 expected in each column, standard deviation 12
    assert hits.min() > 100
    assert hits.max() < 220


def test_unit_block_follows_the_block_of_the_lowering():
    layout = ps.lower(ps.random(2, unit=ps.block, seed=1), q_len=64, block=(16, 8))
    assert layout.tiles() == layout.tiles(ps.TileKind.FULL) == 4 * 2
    with pytest.raises(ps.StudioError, match="depends on the block size"):
        ps.random(2, unit=ps.block).allows(np.array(0), np.array(0), ps.Scope(kv_len=9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.window(-1, 0), "window's left must lie between 0 and"),
        (lambda: ps.window(1.5, 0), "window's left must be a whole number"),
        (lambda: ps.dilated(1, 1, rate=0), "dilated's rate must lie between 1 and"),
        (lambda: ps.strided(0), "strided's stride must lie between 1"),
        (lambda: ps.globals(rows=5), r"globals' rows takes a tuple of whole numbers or ranges"),
        (lambda: ps.rect(3, 4), "rect's rows must be a range"),
        (lambda: ps.rect(range(0, 4, 2), range(4)), "rect's rows must be a range"),
        (lambda: ps.blocks((16, 16), 5), "blocks' rows must be a tuple"),
        (lambda: ps.heads({range(0, 2): ps.causal, 1: ps.dense}), "head 1 has two patterns"),
        (lambda: ps.heads({}), "takes a mapping"),
        (lambda: ps.causal & 3, "& combines two patterns, got 3"),
        (lambda: bool(ps.causal), "use & | ~ instead of and, or, not"),
        (lambda: ps.causal.within(ps.dense), "within\\(\\) takes docs"),
        (lambda: ps.lower(ps.docs, q_len=4), "docs needs the document lengths"),
        (lambda: ps.Problem(8, docs=(3, 4)), "must add up to kv_len 8, got a sum of 7"),
        (lambda: ps.Problem(-1), "q_len must lie between 0"),
        (lambda: ps.lower(ps.causal, q_len=4, block=0), "block_q must lie between 1"),
        (lambda: ps.lower("causal", q_len=4), "takes a Pattern, got str"),
        (lambda: ps.lower(ps.strided(64), q_len=2**22, block=(1, 1)), "key runs at this block size"),
        (lambda: ps.lower(ps.dense, q_len=2**30, block=(1, 1)), "more than the 16,777,216 query blocks"),
        (lambda: ps.random(2, seed=-1), "random's seed must lie between 0"),
    ],
)
def test_errors_say_what_was_expected(make, message):
    with pytest.raises(ps.StudioError, match=message):
        make()
