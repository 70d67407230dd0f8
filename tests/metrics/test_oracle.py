"""Oracle recall and regret by hand."""

from __future__ import annotations

import pytest

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import capture_of, weighted


def oracle(pattern, layer, block, causal=False):
    return analyze(pattern, capture_of(layer, causal=causal), block=block, metrics=["oracle"])


def test_by_hand():
    # Rows spend .1, .2, .3, .4, so key blocks of 2 hold .3 and .7 of each of the two row blocks.
    # The pattern has the two left tiles: recall .3. Any two right tiles hold .7.
    report = oracle(ps.sink(2), weighted([1, 2, 3, 4]), 2)
    assert report.oracle_recall == pytest.approx(0.7)
    assert report.regret == pytest.approx(0.4)


def test_the_budget_is_tiles_not_pairs():
    # One pair a row costs the same two tiles as all of them.
    assert oracle(ps.sink(1), weighted([1, 2, 3, 4]), 2).oracle_recall == pytest.approx(0.7)


def test_each_head_has_its_own_budget():
    # Blocks of one row and two keys. Head 0 has one tile of four, head 1 all of them.
    pattern = ps.heads({0: ps.rect(range(0, 1), range(0, 1)), 1: ps.dense})
    report = oracle(pattern, weighted([[1, 1, 1, 1], [1, 2, 3, 4]]), (2, 2))
    assert [head.oracle_recall for head in report.layers[0].heads] == pytest.approx([0.25, 1])
    assert [head.regret for head in report.layers[0].heads] == pytest.approx([0.25 - 0.0625, 0])
    assert report.oracle_recall == pytest.approx(0.625)


def test_ragged_blocks_count_by_rows():
    # Three rows in blocks of two: the last block is one row, so its tile holds half of what the first two hold.
    report = oracle(ps.rect(range(2, 3), range(0, 3)), weighted([1, 1, 1]), (2, 4))
    assert report.oracle_recall == pytest.approx(2 / 3)
    assert report.regret == pytest.approx(1 / 3)


def test_tiles_outside_the_dense_mask_are_part_of_the_budget():
    # Blocks of one pair. The pattern's one tile lies above the diagonal; the best one is row 0's own key.
    report = oracle(ps.rect(range(0, 1), range(1, 2)), weighted([1, 1]), 1, causal=True)
    assert (report.oracle_recall, report.regret) == (0.5, 0.5)


def test_no_tiles():
    report = oracle(ps.empty, weighted([1, 1]), 1)
    assert (report.oracle_recall, report.regret) == (0, 0)


def test_too_many_tiles_are_an_error(monkeypatch):
    monkeypatch.setattr("pattern_studio.metrics.tile_mass.MAX_TILES", 15)
    with pytest.raises(
        ps.StudioError, match=r"1 heads of 4 x 4 tiles at block \(1, 1\) are more than the 15 .* larger"
    ):
        oracle(ps.dense, weighted([1] * 4), 1)
    assert analyze(ps.dense, capture_of(weighted([1] * 4)), block=1, metrics=["recall"]).oracle_recall is None
