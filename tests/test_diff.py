"""diff: drawn cases, and every count against the masks of random pairs of trees."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.diff import diff
from tests import strategies


def test_an_off_by_one_is_a_subset():
    """A1 (transformers#29623): the same W once as W keys and once as W + 1."""
    found = diff(ps.parse("causal & window(3, 0)"), ps.parse("causal & window(4, 0)"), ps.Problem(8), block=1)
    assert found.verdict == "subset"
    assert vars(found.pairs) == {"only_a": 0, "only_b": 4, "both": 26}
    assert vars(found.tiles) == vars(found.pairs)
    assert [(e.i, e.j, e.side, e.keys) for e in found.examples[:2]] == [(4, 0, "b", 1), (5, 1, "b", 1)]


def test_the_four_verdicts():
    problem = ps.Problem(8)
    for a, b, verdict in (
        ("causal & window(7, 0)", "causal", "equal"),
        ("sink(1)", "sink(2)", "subset"),
        ("dense", "causal", "superset"),
        ("sink(1)", "window(0, 0)", "crossing"),
    ):
        assert diff(ps.parse(a), ps.parse(b), problem, 2).verdict == verdict
    assert diff(ps.parse("causal & window(7, 0)"), ps.causal, ps.Problem(9), 2).verdict == "subset"


def test_tiles_only_in_one_are_not_the_tiles_of_the_difference():
    # The pairs differ inside tiles that both have: no tile is only in one.
    found = diff(ps.causal, ps.dense, ps.Problem(4), block=4)
    assert (found.pairs.only_b, found.tiles.only_b, found.tiles.both) == (6, 0, 1)
    found = diff(ps.causal, ps.dense, ps.Problem(4), block=2)
    assert (found.pairs.only_b, found.tiles.only_b, found.tiles.both) == (6, 1, 3)


def test_heads_have_verdicts_of_their_own():
    a = ps.heads({range(0, 2): ps.causal, 2: ps.dense})
    found = diff(a, ps.causal, ps.Problem(4, heads=3), block=2)
    assert found.verdict == "superset"
    assert [sides.verdict for sides in found.head_pairs] == ["equal", "equal", "superset"]
    assert [(e.head, e.i, e.j, e.keys) for e in found.examples] == [(2, 0, 1, 3), (2, 1, 2, 2), (2, 2, 3, 1)]
    assert "head 1: equal\nhead 2: superset\n\nfirst differences:\nhead 2, query 0: key 1 only in a, and 2" in str(
        found
    )
    assert [head["verdict"] for head in found.as_dict()["heads"]] == ["equal", "equal", "superset"]


def test_rows_are_named_by_row_and_by_position():
    example = diff(ps.causal, ps.empty, ps.Problem(2, 5), block=2).examples[0]
    assert (example.row, example.i, example.j, example.keys) == (0, 3, 0, 4)


def test_what_can_not_be_compared():
    with pytest.raises(ps.StudioError, match="takes two Patterns, got str; read text with parse"):
        diff("causal", ps.causal, ps.Problem(4))  # type: ignore[arg-type]
    with pytest.raises(ps.StudioError, match="differs by layer"):
        diff(ps.layers({0: ps.causal}), ps.causal, ps.Problem(4))
    assert diff(ps.layers({0: ps.causal}), ps.causal, ps.Problem(4), layer=0).verdict == "equal"
    assert diff(ps.causal, ps.dense, ps.Problem(0, 7)).verdict == "equal"


@settings(max_examples=35, deadline=None)
@given(strategies.patterns(), strategies.patterns(), strategies.problems(), strategies.blocks)
def test_counts_equal_the_masks(a, b, problem, block):
    found = diff(a, b, problem, block, examples=4)
    masks = [ps.dense_mask(p, problem, block=block) for p in (a, b)]
    kinds = [[ps.lower(p, problem, block=block).tile_kinds(h) > 0 for h in range(problem.heads)] for p in (a, b)]
    for counts, per_head, (x, y) in (
        (found.pairs, found.head_pairs, masks),
        (found.tiles, found.head_tiles, (np.array(kinds[0]), np.array(kinds[1]))),
    ):
        assert [s.only_a for s in per_head] == (x & ~y).sum((1, 2)).tolist()
        assert [s.only_b for s in per_head] == (y & ~x).sum((1, 2)).tolist()
        assert [s.both for s in per_head] == (x & y).sum((1, 2)).tolist()
        assert (counts.only_a, counts.only_b) == ((x & ~y).sum(), (y & ~x).sum())
    assert (found.verdict == "equal") == bool((masks[0] == masks[1]).all())
    differing = np.flatnonzero((masks[0] != masks[1]).any((0, 2)))
    assert bool(found.examples) == bool(len(differing))
    for example in found.examples:
        x, y = (mask[example.head, example.row] for mask in (masks if example.side == "a" else masks[::-1]))
        assert (np.flatnonzero(x & ~y)[0], (x & ~y).sum()) == (example.j, example.keys)
        assert example.i == example.row + problem.offset
    if found.examples:
        assert found.examples[0].row == differing[0]


def test_long_problems_cost_their_runs():
    begin = time.process_time()
    a, b = ps.parse("causal & (window(4095, 0) | sink(64))"), ps.parse("causal & (window(4096, 0) | sink(63))")
    found = diff(a, b, ps.Problem(2**18, heads=32))
    assert time.process_time() - begin < 10
    assert found.verdict == "crossing"
    assert found.pairs.only_b == found.pairs.only_a == 32 * (2**18 - 4096 - 64)
