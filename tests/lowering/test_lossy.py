"""cover, strict and threshold: hand-drawn tiles, then every count against the masks themselves."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.lowering.lossy import cover, strict, threshold
from tests import strategies


def drawn(layout: ps.BlockLayout) -> str:
    return " ".join("".join(".#"[bool(kind)] for kind in row) for row in layout.tile_kinds())


def test_drawn_by_hand():
    # Query blocks of 2, key blocks of 2: rows 0-1 have 3 of 4 diagonal pairs; the window's far tile has 1 of 4.
    exact = ps.lower(ps.parse("causal & window(2, 0)"), q_len=6, block=2)
    np.testing.assert_array_equal(exact.expand()[2:4], [[1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]])
    assert drawn(cover(exact).layout) == "#.. ##. .##"
    assert (cover(exact).pairs_added, cover(exact).pairs_dropped) == (5, 0)
    assert drawn(strict(exact).layout) == "... ... ..."
    assert (strict(exact).pairs_dropped, strict(exact).rows_emptied) == (15, 6)
    assert drawn(threshold(exact, 0.75).layout) == "#.. ##. .##"
    wide = ps.lower(ps.parse("causal & window(1, 0)"), q_len=6, block=2)
    assert drawn(threshold(wide, 0.75).layout) == "#.. .#. ..#"
    kept = threshold(wide, 0.75)
    assert (kept.pairs_added, kept.pairs_dropped, kept.rows_emptied) == (3, 2, 0)


def test_a18_a_unidirectional_layout_of_whole_tiles_leaks_240_pairs():
    """DeepSpeed#519: the layout admits future tokens in diagonal blocks. Here the report says how many."""
    lossy = cover(ps.lower(ps.causal, q_len=32, block=16))
    assert (lossy.exact.pairs, lossy.layout.pairs, lossy.pairs_added) == (528, 768, 240)


def test_share_counts_the_pairs_that_exist():
    # The last tile is 2 x 1: its 2 pairs are all there are, so it is FULL already and never a matter of shares.
    exact = ps.lower(ps.parse("causal | globals(cols=(4,))"), q_len=6, kv_len=5, q_offset=0, block=(2, 4))
    assert exact.tiles(ps.TileKind.FULL) == 4
    one_of_four = ps.lower(ps.parse("strided(2)"), q_len=2, kv_len=5, q_offset=0, block=(2, 2))
    np.testing.assert_array_equal(one_of_four.expand(), [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]])
    assert threshold(one_of_four, 0.5).layout.tiles() == 3
    # In the run of one mask the ragged tile has 1 of 2 pairs, the others 1 of 4.
    corner = ps.lower(ps.parse("rect(0:1, 0:2) | rect(0:1, 4:5)"), q_len=2, kv_len=5, q_offset=0, block=(2, 2))
    assert threshold(corner, 0.51).layout.tiles() == 0


def test_seven_in_a_hundred_reach_a_share_of_seven_percent():
    exact = ps.lower(ps.parse("rect(0:1, 0:7)"), q_len=10, block=10)
    assert threshold(exact, 0.07).layout.tiles() == 1


def test_heads_count_each_and_are_summed():
    exact = ps.lower(ps.heads({range(0, 3): ps.causal, 3: ps.dense}), q_len=32, heads=4, block=16)
    lossy = cover(exact)
    assert lossy.added.tolist() == [240, 240, 240, 0]
    assert lossy.pairs_added == 720
    assert lossy.layout.groups == 2
    assert strict(exact).emptied.tolist() == [16, 16, 16, 0]
    np.testing.assert_array_equal(strict(exact).emptied_rows(1), np.arange(16))
    with pytest.raises(ps.StudioError, match="expected a head from 0 to 3, got 4; choose one of them"):
        strict(exact).emptied_rows(4)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ps.StudioError, match=r"share of allowed pairs from 0 to 1, got .*; such as 0\.5"):
        threshold(ps.lower(ps.causal, q_len=4, block=2), share)


def test_the_report_is_plain_values():
    lossy = threshold(ps.lower(ps.causal, q_len=32, block=16), 0.5)
    assert lossy.as_dict() == {
        "lowering": "threshold(0.5)",
        "pairs": 768,
        "pairs_added": 240,
        "pairs_dropped": 0,
        "rows_emptied": 0,
        "tiles_full": 3,
        "tiles_exact": 3,
    }
    assert lossy.layout.pattern_hash is None


@settings(max_examples=120, deadline=None)
@given(
    strategies.patterns(), strategies.problems(), strategies.blocks, st.sampled_from([None, 0, 0.07, 0.25, 0.5, 0.9, 1])
)
def test_every_count_equals_the_masks(pattern, problem, block, share):
    exact = ps.lower(pattern, problem, block=block)
    for lossy in (cover(exact), strict(exact)) if share is None else (threshold(exact, share),):
        layout = lossy.layout.validate()
        assert set(np.unique(layout.rows.kind)) <= {ps.TileKind.FULL}
        for head in range(problem.heads):
            before, after = exact.expand(head), layout.expand(head)
            assert lossy.added[head] == (after & ~before).sum()
            assert lossy.dropped[head] == (before & ~after).sum()
            np.testing.assert_array_equal(lossy.emptied_rows(head), np.flatnonzero(before.any(1) & ~after.any(1)))
            for row, key in np.argwhere(exact.tile_kinds(head)):
                tile = (
                    slice(row * block[0], (row + 1) * block[0]),
                    slice(key * block[1], (key + 1) * block[1]),
                )
                found = before[tile].mean()
                want = {"cover": True, "strict": found == 1}.get(lossy.name, found == 1 or found >= (share or 0))
                assert after[tile].all() == want
                assert after[tile].any() == want


def test_a_million_tokens_at_narrow_key_blocks_stay_cheap():
    exact = ps.lower(ps.parse("causal & (window(4095, 0) | sink(64))"), q_len=2**20, block=(128, 1))
    begin = time.process_time()
    lossy = threshold(exact, 0.5)
    assert time.process_time() - begin < 10
    assert lossy.pairs_added == lossy.layout.pairs - exact.pairs + lossy.pairs_dropped
