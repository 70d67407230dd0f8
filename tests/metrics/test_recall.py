"""Mass recall by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture import LayerCapture
from pattern_studio.metrics import analyze, row_recall
from pattern_studio.metrics.recall import WorstRow
from tests.metrics.captures import capture_of, weighted


def test_full_attention_by_hand():
    # Every row spends 1/10, 2/10, 3/10, 4/10; the window keeps each row's own key and the one before.
    capture = capture_of(weighted([1, 2, 3, 4]))
    report = analyze(ps.window(1, 0), capture, block=2, metrics=["recall"])
    assert report.layers[0].row_recall.tolist() == [pytest.approx([0.1, 0.3, 0.5, 0.7])]
    assert report.recall.mean == pytest.approx(0.4)
    assert report.recall.min == pytest.approx(0.1)
    assert report.recall.p1 == pytest.approx(0.1 + 0.03 * 0.2)  # 1 % of the way over the three gaps of four rows
    assert report.figures["worst_rows"][:2] == [
        WorstRow(0, 0, 0, "t0", pytest.approx(0.1)),
        WorstRow(0, 0, 1, "t1", pytest.approx(0.3)),
    ]


def test_causal_attention_by_hand():
    # Row i spends in proportion to 1..i+1; the sink keeps key 0: 1, 1/3, 1/6, 1/10.
    capture = capture_of(weighted([1, 2, 3, 4]), causal=True)
    rows = row_recall(ps.sink(1), capture, layer=0)
    assert rows.tolist() == [pytest.approx([1, 1 / 3, 1 / 6, 1 / 10])]


def test_query_heads_read_their_own_kv_head():
    # Two query heads each on KV heads of weights 3:1 and 1:1; keeping key 0 keeps 3/4 and 1/2.
    capture = capture_of(weighted([[3, 1], [1, 1]], heads=4))
    report = analyze(ps.sink(1), capture, block=2, metrics=["recall"])
    assert [head.recall.mean for head in report.layers[0].heads] == pytest.approx([0.75, 0.75, 0.5, 0.5])
    assert report.layers[0].recall.mean == pytest.approx(0.625)
    assert [row.head for row in report.figures["worst_rows"]] == [2, 2, 3, 3, 0]


def test_layers_weigh_by_their_rows_and_keep_their_numbers():
    one_head, three_heads = weighted([3, 1]), weighted([[1, 1]] * 3)
    report = analyze(ps.sink(1), capture_of(one_head, three_heads, first=7), metrics=["recall"])
    assert report.recall.mean == pytest.approx((0.75 + 3 * 0.5) / 4)
    assert [(layer.layer, layer.recall.mean) for layer in report.layers] == [(7, 0.75), (8, 0.5)]
    assert report.figures["worst_rows"][0] == WorstRow(8, 0, 0, "t0", 0.5)


def test_empty_rows_count_with_0():
    report = analyze(ps.rect(range(0, 1), range(0, 4)), capture_of(weighted([1] * 4)), block=2, metrics=["recall"])
    assert (report.recall.mean, report.recall.p1, report.recall.min) == (0.25, 0, 0)
    assert [row.row for row in report.figures["worst_rows"]] == [1, 2, 3, 0]


def test_scores_are_scaled():
    q, k = torch.tensor([[[2.0]] * 2]), torch.tensor([[[0.0], [float(np.log(3))]]])
    report = analyze(ps.sink(1), capture_of(LayerCapture(q, k, k), scale=0.5), metrics=["recall"])
    assert report.recall.mean == pytest.approx(1 / 4)


def test_a_recall_too_small_for_float32_is_0_and_not_nan():
    capture = capture_of(LayerCapture(torch.ones(1, 2, 1), torch.tensor([[[0.0], [500.0]]]), torch.ones(1, 2, 1)))
    rows = row_recall(ps.sink(1), capture, layer=0)
    assert rows.tolist() == [[0, 0]]
