"""spargeattn: the mask that its block map stands for. The kernel needs CUDA: the contract is checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import check, export, read
from tests.exporters.consumers import anything, arrays, compared, long_problems, stretched


def computed(file, problem):
    header, parts = arrays(file)
    assert parts["mask_id"].dtype == np.int8
    assert parts["mask_id"].shape[0] == 1
    return stretched(parts["mask_id"][0], header["block"], problem)


@settings(max_examples=20, deadline=None)
@given(anything, long_problems(), st.sampled_from([(128, 64), (64, 128)]))
def test_map_holds_the_pattern(pattern, problem, block):
    file = compared("spargeattn", pattern, problem, block, lambda f: computed(f, problem))
    if file:
        assert arrays(file)[0]["block"] == list(block)
        np.testing.assert_array_equal(ps.dense_mask(read(file.data), problem), computed(file, problem))


def test_short_sequences_are_refused():
    with pytest.raises(ps.StudioError, match="at least 128 queries, got q_len 100"):
        export(ps.dense, ps.Problem(100), to="spargeattn")
    assert check(ps.dense, ps.Problem(128), (128, 64), to="spargeattn").kind == "exact"
