"""Boxes of grid cells against lists of cells."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pattern_studio.boxes import boxes_of, runs_of
from pattern_studio.permutation import keyed, permuted, restored
from tests import strategies


def held(boxes, index) -> list[tuple[int, ...]]:
    ranges = (range(a, b + 1) for a, b in zip(boxes.low[:, index], boxes.high[:, index], strict=True))
    return list(itertools.product(*ranges))


@settings(max_examples=100)
@given(strategies.grids(), st.lists(st.tuples(st.integers(-9, 60), st.integers(0, 30)), max_size=5))
def test_boxes_hold_the_stretch_and_runs_the_box(grid, stretches):
    first = np.array([f for f, _ in stretches], np.int64)
    last = first + np.array([n for _, n in stretches], np.int64)
    boxes = boxes_of(grid, first, last)
    for item in range(len(first)):
        positions = np.arange(max(first[item], 0), min(last[item], grid.cells - 1) + 1)
        want = {tuple(cell) for cell in grid.coordinates(positions).T.tolist()}
        mine = np.flatnonzero(boxes.owner == item)
        cells = [cell for n in mine for cell in held(boxes, n)]
        assert boxes.cells[mine].sum() == len(want)
        if grid.morton:
            assert want <= set(cells)
        else:
            assert sorted(cells) == sorted(want)
    box, start, stop = runs_of(grid, boxes.low, boxes.high)
    for n in range(len(boxes.owner)):
        want = sorted(int(grid.positions(np.array(cell))) for cell in held(boxes, n))
        got = [p for run in np.flatnonzero(box == n) for p in range(start[run], stop[run])]
        assert sorted(got) == want


@given(st.integers(0, 2**63 - 1), st.integers(0, 100), st.integers(1, 300))
def test_permutations_permute_and_are_undone(seed, number, size):
    value = np.arange(size)
    key, sizes = keyed(seed, np.full(size, number)), np.full(size, size)
    sent = permuted(value, key, sizes)
    assert sorted(sent.tolist()) == value.tolist()
    np.testing.assert_array_equal(restored(sent, key, sizes), value)
