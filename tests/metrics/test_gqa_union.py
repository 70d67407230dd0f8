"""Agreement of grouped heads by hand, and against sets of tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import Brute, capture_of, studies, weighted


def union(pattern, layer):
    return analyze(pattern, capture_of(layer), block=2, metrics=["gqa_union"])


def test_by_hand():
    # 2 x 2 tiles. Head 0 reads the left two, head 1 the lower two: together 3, on average 2.
    pattern = ps.heads({0: ps.sink(1), 1: ps.globals(rows=(2, 3))})
    assert union(pattern, weighted([1] * 4, heads=2)).figures["gqa_union"] == 1.5


def test_only_heads_of_one_group_count_together():
    # Groups (0, 1) and (2, 3): the first agrees on 2 tiles, the second shares nothing of 2 + 2.
    left, right = ps.sink(1), ps.globals(cols=(2, 3))
    pattern = ps.heads({0: left, 1: left, 2: left, 3: right})
    report = union(pattern, weighted([[1] * 4] * 2, heads=4))
    assert report.figures["gqa_union"] == (2 + 4) / (2 + 2)
    assert report.layers[0].heads[0].figures["gqa_union"] is None


def test_nothing_to_agree_on():
    assert union(ps.dense, weighted([[1] * 4] * 2)).figures["gqa_union"] is None
    assert union(ps.empty, weighted([1] * 4, heads=2)).figures["gqa_union"] is None


@settings(max_examples=40, deadline=None)
@given(studies())
def test_equals_the_union_of_tile_maps(study):
    capture, pattern, block = study
    number, layer = next(iter(capture.layers.items()))
    brute = Brute(capture, number, pattern, block)
    active = (brute.tiles(brute.allowed) > 0).reshape(layer.kv_heads, -1, *brute.tiles(brute.allowed).shape[1:])
    found = analyze(pattern, capture, block=block, layers=[number], metrics=["gqa_union"]).figures["gqa_union"]
    if active.shape[1] == 1 or not active.any():
        assert found is None
    else:
        assert found == pytest.approx(active.any(1).sum() / np.mean(active, axis=1).sum())
