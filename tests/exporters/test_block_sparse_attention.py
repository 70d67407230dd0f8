"""block_sparse_attention: the mask that its tables stand for. The kernel needs CUDA: the contract is checked."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.exporters import check, export, read
from tests.exporters.consumers import anything, arrays, bottom_right, compared, long_problems, stretched


def computed(file, problem):
    header, parts = arrays(file)
    assert parts["base_blockmask"].dtype == bool
    np.testing.assert_array_equal(parts["head_mask_type"], np.ones(problem.heads, np.int32), strict=True)
    mask = stretched(parts["base_blockmask"][0], (128, 128), problem)
    return mask & bottom_right(problem) if header["causal"] else mask


@settings(max_examples=20, deadline=None)
@given(anything, long_problems())
def test_mask_holds_the_pattern(pattern, problem):
    file = compared("block_sparse_attention", pattern, problem, 128, lambda f: computed(f, problem))
    if file and problem.offset == problem.kv_len - problem.q_len:
        np.testing.assert_array_equal(ps.dense_mask(read(file.data), problem), computed(file, problem))


def test_causal_flag_is_used_where_it_is_right():
    blocks = ps.blocks.from_mask([[1, 0], [1, 1]], 128)
    assert check(ps.causal & blocks, ps.Problem(256), to="block_sparse_attention").kind == "exact"
    assert arrays(export(blocks, ps.Problem(256), to="block_sparse_attention"))[0]["causal"] is False
    # Aligned otherwise than the kernel, the flag would cut elsewhere.
    shifted = check(ps.causal, ps.Problem(256, q_offset=5), to="block_sparse_attention")
    assert shifted.kind == "cover"


def test_another_block_is_told():
    file = export(ps.causal, ps.Problem(256), 64, to="block_sparse_attention")
    assert file.notes == ("lowered at 128 x 128, not 64 x 64: the kernel has no other block size",)
