"""Primitives made of rows, columns, diagonals, segments and units, drawn by hand."""

from __future__ import annotations

import numpy as np
import pytest

import pattern_studio as ps

from .drawing import assert_drawn

DRAWN = {
    "prefix(2)": "##.. ##.. ##.. ##..",
    "causal | prefix(2)": "##.. ##.. ###. ####",
    "prefix(0)": ".. ..",
    "vertical((0, 3))": "#..# #..# #..# #..#",
    "vertical((1,)).T": ".... #### .... ....",
    "vertical(())": ".. ..",
    "comb(3, (1,))": ".#..# .#..# .#..# .#..# .#..#",
    "comb(2, (0,)).T": "#### .... #### ....",
    "comb(4, (range(2, 4),))": "..##.. ..##.. ..##.. ..##.. ..##.. ..##..",
    "slash((0, 2))": "#.... .#... #.#.. .#.#. ..#.#",
    "slash((1,)).T": ".#.. ..#. ...# ....",
    "slash(range(0, 6, 2))": "#.... .#... #.#.. .#.#. #.#.#",
    "slash((range(0, 2), 3))": "#.... ##... .##.. #.##. .#.##",
    "longnet((4,), (2,))": "#.#..... ........ #.#..... ........ ....#.#. ........ ....#.#. ........",
    "longnet((2, 4), (1, 2), offset=1)": "##.. ##.# ..## .###",
    # Places are counted from the segment's start: position 3 is place 0 of the second segment.
    "longnet((3,), (2,))": "#.#... ...... #.#... ...#.# ...... ...#.#",
    "hierarchical(((1, 1), (4, 2)))": "#.#... ###.#. #.#.#. #.###. ..#.#. ..#.##",
    "butterfly()": "###. ##.# #.## .###",
    "butterfly(unit=2, levels=1)": "####.... ####.... ####.... ####.... ....#### ....#### ....#### ....####",
    "butterfly(levels=0)": "#.. .#. ..#",
    # Six frames of two: whole at distances 0 and 1, the same place at 2, 3 and 4, nothing at 5.
    "radial(2)": """
        #####.#.#...
        ####.#.#.#..
        #######.#.#.
        ######.#.#.#
        #.#######.#.
        .#######.#.#
        #.#.#######.
        .#.#######.#
        #.#.#.######
        .#.#.#######
        ..#.#.#.####
        ...#.#.#####
    """,
}

FIRST_ROW = [28, 34, 42, 59, 91, 164]


@pytest.mark.parametrize("text", DRAWN)
def test_drawn_by_hand(text):
    assert_drawn(ps.parse(text), DRAWN[text])


def test_slash_is_cheap_and_needs_no_bit_masks():
    layout = ps.lower(ps.slash(range(0, 8192, 512)), q_len=65_536, block=128)
    assert len(layout.bits) == 0
    assert layout.pairs == sum(65_536 - offset for offset in range(0, 8192, 512))
    assert len(layout.rows.start) <= 16 * layout.q_blocks


def test_expander_is_regular_symmetric_and_fixed():
    mask = ps.dense_mask(ps.expander(6, seed=3), ps.Problem(200))[0]
    np.testing.assert_array_equal(mask, mask.T)
    assert mask.sum(1).max() == 6
    assert (mask.sum(1) == 6).mean() > 0.85  # neighbours coincide now and then
    other = ps.dense_mask(ps.expander(6, seed=4), ps.Problem(200))[0]
    assert (mask != other).any()
    # Written down once: a change here changes every pattern that users have saved.
    assert np.flatnonzero(mask[0]).tolist() == FIRST_ROW
    reached = np.eye(200, dtype=bool)[0]
    for _ in range(5):
        reached = mask[reached].any(0) | reached
    assert reached.all()  # an expander: few steps lead everywhere


def test_expander_by_blocks_and_within_documents():
    layout = ps.lower(ps.expander(2, unit=ps.block, seed=1), q_len=64, block=(16, 4))
    assert layout.tiles() == layout.tiles(ps.TileKind.FULL)
    inside = ps.dense_mask(ps.expander(2).within(ps.docs), ps.Problem(10, docs=(4, 6)))[0]
    alone = ps.dense_mask(ps.expander(2), ps.Problem(6))[0]
    np.testing.assert_array_equal(inside[4:, 4:], alone)
    assert not inside[:4, 4:].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.prefix(-1), "prefix's n must lie between 0"),
        (lambda: ps.vertical(3), "vertical's cols takes a tuple"),
        (lambda: ps.slash((-1,)), "a position in slash's offsets must lie between 0"),
        (lambda: ps.slash(range(8, 0, -1)), "slash's offsets takes rising ranges"),
        (lambda: ps.comb(4, (4,)), "comb's places must lie below its period 4, got 4"),
        (lambda: ps.comb(0, ()), "comb's period must lie between 1"),
        (lambda: ps.longnet((4, 8), (1,)), "one rate for each, got 2 and 1"),
        (lambda: ps.longnet((), ()), "takes 1 to 64 segment lengths"),
        (lambda: ps.longnet((0,), (1,)), "a segment of longnet must lie between 1"),
        (lambda: ps.hierarchical((64, 1)), r"takes levels of \(reach, rate\)"),
        (lambda: ps.hierarchical(()), "takes 1 to 64 levels, got 0"),
        (lambda: ps.hierarchical(((0, 1),)), "a reach of hierarchical must lie between 1"),
        (lambda: ps.radial(0), "radial's frame must lie between 1"),
        (lambda: ps.butterfly(unit=0), "butterfly's unit must lie between 1"),
        (lambda: ps.butterfly(levels=32), "butterfly's levels must lie between 0 and 31"),
        (lambda: ps.butterfly(unit=ps.block).allows(np.array(0), np.array(0)), "depends on the block size"),
        (lambda: ps.expander(3), "expander's degree must be even"),
        (lambda: ps.expander(2, unit=ps.block).allows(np.array(0), np.array(0)), "depends on the block size"),
        (lambda: ps.expander(2).allows(np.array(0), np.array(0)), r"give allows\(\) a Scope"),
    ],
)
def test_errors_say_what_was_expected(make, message):
    with pytest.raises(ps.StudioError, match=message):
        make()
