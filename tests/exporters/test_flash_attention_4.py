"""flash_attention_4: its lists forward and backward. The kernel needs CUDA: the contract is checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.exporters import export
from tests.exporters.consumers import anything, arrays, comes_back, compared, long_problems, stretched


def listed(count, index):
    """The tiles of counts [1, heads, rows] and indices [1, heads, rows, columns], bool [heads, rows, columns]."""
    assert count.dtype == index.dtype == np.int32
    tiles = np.zeros(index.shape[1:], bool)
    for head, row in np.ndindex(*count.shape[1:]):
        tiles[head, row, index[0, head, row, : count[0, head, row]]] = True
    np.testing.assert_array_equal(tiles.sum(-1), count[0])
    return tiles


def computed(file, problem):
    header, parts = arrays(file)
    assert parts["block_size"].tolist() == header["block"]
    full = listed(parts["full_block_cnt"], parts["full_block_idx"])
    backward = listed(parts["bwd_full_block_cnt"], parts["bwd_full_block_idx"])
    np.testing.assert_array_equal(backward, full.swapaxes(1, 2))
    assert not parts["mask_block_cnt"].any()
    assert parts["mask_block_idx"].shape == parts["full_block_idx"].shape
    return stretched(full, header["block"], problem)


@settings(max_examples=20, deadline=None)
@given(anything, long_problems())
def test_lists_hold_the_pattern(pattern, problem):
    file = compared("flash_attention_4", pattern, problem, 128, lambda f: computed(f, problem))
    comes_back(file, problem, computed)


def test_ragged_lengths_and_small_blocks_are_refused():
    for problem, block, length in ((ps.Problem(200), 128, 200), (ps.Problem(256), 64, 256)):
        with pytest.raises(ps.StudioError, match=f"a multiple of 128 that divides the length {length}, got {block}"):
            export(ps.dense, problem, block, to="flash_attention_4")
