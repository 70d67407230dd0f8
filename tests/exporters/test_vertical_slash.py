"""vertical_slash: the mask that the kernel's loops make of the tables. It needs CUDA: its rule is written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import check, export
from tests.exporters.consumers import anything, arrays, comes_back, compared, long_problems


def computed(file, problem):
    _, parts = arrays(file)
    assert all(part.dtype == np.int32 for part in parts.values())
    length, rows = problem.q_len, -(-problem.q_len // 64)
    assert parts["block_count"].shape == parts["column_count"].shape == (1, problem.heads, rows)
    out = np.zeros((problem.heads, length, length), bool)
    for head, row in np.ndindex(problem.heads, rows):
        queries = slice(row * 64, min(row * 64 + 64, length))
        seen = np.zeros((queries.stop - queries.start, length), int)
        i = np.arange(queries.start, queries.stop)[:, None]
        for offset in parts["block_offset"][0, head, row, : parts["block_count"][0, head, row]]:
            keys = np.arange(offset, min(offset + 64, length))
            assert (keys[0] <= i).all(), "the kernel's softmax needs a key of the first block for every row"
            seen[:, keys] += keys <= i
        for column in parts["column_index"][0, head, row, : parts["column_count"][0, head, row]]:
            assert column < queries.start, "single keys are not cut at the diagonal"
            seen[:, column] += 1
        assert seen.max() <= 1, "no key is counted twice"
        out[head, queries] = seen > 0
    return out


causal = st.one_of(anything.map(lambda p: ps.causal & (p | ps.window(0, 0))), anything)


@settings(max_examples=30, deadline=None)
@given(causal, long_problems(square=True))
def test_tables_hold_the_pattern(pattern, problem):
    file = compared("vertical_slash", pattern, problem, 64, lambda f: computed(f, problem))
    comes_back(file, problem, computed)


def test_keys_on_which_blocks_agree_are_exact():
    columns = ps.globals(cols=(3, 7, range(10, 200)))
    pattern = ps.causal & (columns | ps.blocks.from_mask(np.eye(6, dtype=bool), 64))
    assert check(pattern, ps.Problem(384), to="vertical_slash").kind == "exact"


@pytest.mark.parametrize(
    ("pattern", "problem", "message"),
    [
        (ps.window(3, 3), ps.Problem(128), "add `causal &`"),
        (ps.causal & ps.rect(range(0, 9), range(0, 9)), ps.Problem(128), "every query needs a key, and 119 have none"),
        (ps.causal, ps.Problem(64, 128), "as many queries as keys"),
    ],
)
def test_what_does_not_fit_is_said(pattern, problem, message):
    with pytest.raises(ps.StudioError, match=message):
        export(pattern, problem, to="vertical_slash", allow="cover")
