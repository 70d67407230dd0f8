"""What painting writes: exactly the painted pairs are added or taken away, whatever the shape and the problem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_studio_app.events import Drawn, ToolChosen, Typed, Undo
from pattern_studio_app.painting import boxed, drawn
from pattern_studio_app.state import State, reduce

import pattern_studio as ps
from pattern_studio.lowering.reference import dense_mask
from pattern_studio.plot import Viewport

SHAPES = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=12)


def mask(pattern: ps.Pattern, problem: ps.Problem) -> np.ndarray:
    return np.asarray(dense_mask(pattern, problem))


def painted(units, size, problem: ps.Problem) -> np.ndarray:
    """The pairs of units, drawn by hand: bool [q_len, kv_len]."""
    out = np.zeros((problem.q_len, problem.kv_len), bool)
    for row, key in units:
        out[row * size[0] : (row + 1) * size[0], key * size[1] : (key + 1) * size[1]] = True
    return out


@settings(deadline=None, max_examples=60)
@given(SHAPES, SHAPES, st.booleans(), st.sampled_from([0, 4, 3]))
def test_exactly_what_is_drawn_is_added_or_taken_away(first, second, add, more_keys):
    size, problem = (4, 3), ps.Problem(22, 22 + more_keys)
    pattern = ps.causal & ps.window(9, 0)
    expected = mask(pattern, problem)
    for units in (first, second):
        units = {(row, key) for row, key in units if row * 4 < 22 and key * 3 < 22 + more_keys}
        if not units:
            continue
        pattern = drawn(pattern, units, size, problem, add)
        here = painted(units, size, problem)
        expected = expected | here if add else expected & ~here
        assert ps.parse(str(pattern)) == pattern
        assert (mask(pattern, problem) == expected).all()


def test_a_tile_is_written_as_rect_and_another_shape_as_blocks():
    problem = ps.Problem(1024)
    corner = {(1, 10), (1, 11), (2, 11), (3, 11), (3, 12), (4, 9)}
    assert str(drawn(ps.causal, {(1, 10)}, (64, 64), problem, True)) == (
        "causal | rect(range(64, 128), range(640, 704))"
    )
    once = drawn(ps.causal, corner, (64, 64), problem, True)
    assert str(once) == "causal | blocks((64, 64), ((), (range(10, 12),), (11,), (range(11, 13),), (9,)))"
    assert str(drawn(once, {(0, 15)}, (64, 64), problem, True)) == (
        "causal | blocks((64, 64), ((15,), (range(10, 12),), (11,), (range(11, 13),), (9,)))"
    )
    less = drawn(drawn(ps.causal, corner, (64, 64), problem, False), {(5, 0)}, (64, 64), problem, False)
    assert str(less) == "causal & ~blocks((64, 64), ((), (range(10, 12),), (11,), (range(11, 13),), (9,), (0,)))"


def test_far_down_a_long_sequence_the_text_stays_short():
    problem = ps.Problem(1_048_576)
    corner = {(8000, 1), (8001, 1), (8001, 2)}
    assert len(str(drawn(ps.causal, corner, (128, 128), problem, True))) < 200


def test_boxes_are_rows_and_rectangles_positions():
    problem = ps.Problem(100, 164)
    text = str(boxed(ps.causal, Viewport(0, 50, 0, 10), problem, add=False))
    assert text == "causal & ~rect(range(64, 114), range(0, 10))"


@pytest.mark.parametrize("tool", ["add", "remove"])
def test_a_drawn_shape_is_one_step_of_undo(tool):
    state = State()
    for event in (Typed("causal & window(9, 0)"), ToolChosen(tool), Drawn(frozenset({(0, 3), (1, 1)}), (64, 64))):
        state = reduce(state, event)
    assert state.pattern != ps.parse("causal & window(9, 0)")
    assert reduce(state, Undo()).work.text == "causal & window(9, 0)"
