"""flashinfer_bsr: the matrix that it stands for, and as SciPy reads it. FlashInfer itself needs CUDA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import pattern_studio as ps
from pattern_studio.exporters import export, read
from pattern_studio.exporters._bundle import pack
from tests.exporters.consumers import anything, arrays, compared, long_problems


def computed(file, problem):
    header, parts = arrays(file)
    block_q, block_k = header["block"]
    indptr, indices = parts["indptr"], parts["indices"]
    assert indptr.dtype == indices.dtype == np.int32
    assert (indptr[0], indptr[-1], len(indptr)) == (0, len(indices), problem.q_len // block_q + 1)
    mask = parts.get("mask", np.ones((len(indices), block_q, block_k), bool))
    assert mask.shape == (len(indices), block_q, block_k)
    out = np.zeros((problem.q_len, problem.kv_len), bool)
    for row in range(len(indptr) - 1):
        for n in range(indptr[row], indptr[row + 1]):
            place = slice(row * block_q, (row + 1) * block_q), slice(indices[n] * block_k, (indices[n] + 1) * block_k)
            out[place] = mask[n]
    return np.broadcast_to(out, (problem.heads, *out.shape))


@settings(max_examples=30, deadline=None)
@given(anything, long_problems(), st.sampled_from([(64, 64), (64, 1), (16, 32), (1, 1)]))
def test_matrix_is_the_pattern(pattern, problem, block):
    file = compared("flashinfer_bsr", pattern, problem, block, lambda f: computed(f, problem))
    if file:
        assert str(file.fidelity) == "exact"
        layout = read(file.data)
        assert isinstance(layout, ps.BlockLayout)
        np.testing.assert_array_equal(layout.expand(), computed(file, problem)[0])


def test_scipy_reads_it():
    pattern, problem = ps.parse("causal & (window(20, 0) | sink(3))"), ps.Problem(64, 128)
    _, parts = arrays(export(pattern, problem, (16, 32), to="flashinfer_bsr"))
    matrix = sparse.bsr_matrix((parts["mask"], parts["indices"], parts["indptr"]), shape=(64, 128))
    np.testing.assert_array_equal(matrix.toarray(), ps.dense_mask(pattern, problem)[0])


def test_full_blocks_need_no_mask():
    _, parts = arrays(export(ps.chunk(32), ps.Problem(128), 32, to="flashinfer_bsr"))
    assert parts.keys() == {"indptr", "indices"}


def test_what_does_not_fit_is_said():
    with pytest.raises(ps.StudioError, match="blocks that divide q_len 100 and kv_len 100, got 64 x 64"):
        export(ps.causal, ps.Problem(100), 64, to="flashinfer_bsr")
    with pytest.raises(
        ps.StudioError, match="one pattern for all heads, and this one has 2: export each head's pattern"
    ):
        export(ps.heads({0: ps.causal, 1: ps.dense}), ps.Problem(64, heads=2), 64, to="flashinfer_bsr")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": np.array([0, 1, 1], np.int32)}, r"indptr int32 \[5\]"),
        ({"indptr": np.array([0, 1, 3, 2, 7], np.int32)}, "indptr rising from 0 to 7"),
        ({"indices": np.zeros(7)}, r"indices int32 \[nnz\]"),
        ({"indices": np.array([0, 9, 0, 9, 1, 2, 3], np.int32)}, "not a sound layout"),
        ({"mask": np.ones((3, 16, 16), bool)}, r"mask bool \[7, 16, 16\]"),
    ],
)
def test_hostile_files_are_refused(changes, message):
    header, parts = arrays(export(ps.causal & ps.window(16, 0), ps.Problem(64), 16, to="flashinfer_bsr"))
    with pytest.raises(ps.StudioError, match=message):
        read(pack(header, parts | changes))
