"""flashinfer_variable: the mask that its maps stand for. FlashInfer needs CUDA: the contract is checked."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import check, export
from tests.exporters.consumers import anything, arrays, comes_back, compared, long_problems


def computed(file, problem):
    _, parts = arrays(file)
    mask, rows, columns = (parts[name] for name in ("block_mask_map", "block_row_sz", "block_col_sz"))
    assert (mask.dtype, rows.dtype, columns.dtype) == (np.bool_, np.int32, np.int32)
    assert mask.shape == (problem.heads, rows.shape[1], columns.shape[1])
    assert (rows > 0).all()
    assert (columns > 0).all()
    heads = [m.repeat(r, 0).repeat(c, 1) for m, r, c in zip(mask, rows, columns, strict=True)]
    return np.stack(heads)


@settings(max_examples=30, deadline=None)
@given(anything, long_problems(), st.sampled_from([16, (64, 32), 128]))
def test_maps_hold_the_pattern(pattern, problem, block):
    file = compared("flashinfer_variable", pattern, problem, block, lambda f: computed(f, problem))
    comes_back(file, problem, computed)


def test_rectangles_are_cut_where_the_pattern_changes():
    problem = ps.Problem(100, docs=(30, 0, 70))
    _, parts = arrays(export(ps.docs, problem, to="flashinfer_variable"))
    assert parts["block_row_sz"].tolist() == parts["block_col_sz"].tolist() == [[30, 70]]
    assert check(ps.globals(rows=(0,), cols=(0, 50, 70)), problem, to="flashinfer_variable").kind == "cover"
    assert check(ps.globals(rows=(0,), cols=(0, 50, 70)), problem, 64, to="flashinfer_variable").kind == "exact"
    assert check(ps.causal, problem, to="flashinfer_variable").kind == "cover"
