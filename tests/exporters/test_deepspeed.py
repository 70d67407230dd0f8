"""deepspeed: A18, and what the layout admits against the pattern. DeepSpeed is not run: its contract is checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.exporters import export, read
from tests.exporters.consumers import anything, arrays, compared, long_problems, stretched


def admitted(file, problem):
    header, parts = arrays(file)
    assert parts["layout"].dtype == np.int64
    assert set(np.unique(parts["layout"])) <= {0, 1}
    return stretched(parts["layout"], header["block"], problem)


@settings(max_examples=20, deadline=None)
@given(anything, long_problems(square=True))
def test_layout_holds_the_pattern(pattern, problem):
    file = compared("deepspeed", pattern, problem, 64, lambda f: admitted(f, problem))
    if file:
        again = ps.dense_mask(read(file.data), problem)
        np.testing.assert_array_equal(again, admitted(file, problem))


def test_causal_diagonals_are_refused_unless_covered():  # A18(a)
    problem = ps.Problem(32)
    message = r"deepspeed can't hold this pattern exactly, it adds 240 pairs; .* ask for it by name \(allow='cover'\)"
    with pytest.raises(ps.StudioError, match=message):
        export(ps.causal, problem, 16, to="deepspeed")
    file = export(ps.causal, problem, 16, to="deepspeed", allow="cover")
    assert admitted(file, problem).sum() == 768
    assert ps.lower(ps.causal, problem, block=16).pairs == 528
    assert str(file.fidelity) == "cover(+240)"


@pytest.mark.parametrize("seed", range(10))
def test_random_layouts_come_back_identical(seed):  # A18(b)
    layout = np.random.default_rng(seed).integers(0, 2, (8, 64, 64))
    pattern = ps.heads({head: ps.blocks.from_mask(table, 16) for head, table in enumerate(layout)})
    problem = ps.Problem(1024, heads=8)
    file = export(pattern, problem, 16, to="deepspeed")
    assert str(file.fidelity) == "exact"
    _, parts = arrays(file)
    np.testing.assert_array_equal(parts["layout"], layout)
    np.testing.assert_array_equal(parts["layout"].sum((1, 2)), layout.sum((1, 2)))
    assert read(file.data) == pattern


@pytest.mark.parametrize(
    ("problem", "block", "message"),
    [
        (
            ps.Problem(64, 128),
            16,
            "as many queries as keys, at the same positions, got q_len 64, kv_len 128, q_offset 64",
        ),
        (ps.Problem(64), (16, 8), "square blocks that divide the length 64, got 16 x 8"),
        (ps.Problem(100), 16, "square blocks that divide the length 100, got 16 x 16"),
        (ps.Problem(100), 25, "blocks of 16, 32, 64 or 128 tokens, got 25"),
    ],
)
def test_what_does_not_fit_is_said(problem, block, message):
    with pytest.raises(ps.StudioError, match=f"deepspeed can't hold this pattern: .* takes? {message}"):
        export(ps.causal, problem, block, to="deepspeed", allow="cover")
