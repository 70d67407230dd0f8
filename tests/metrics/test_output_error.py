"""Output error by hand."""

from __future__ import annotations

import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture import LayerCapture
from pattern_studio.metrics import analyze
from tests.metrics.captures import capture_of, weighted


def error(pattern, *layers, causal=False):
    return analyze(pattern, capture_of(*layers, causal=causal), block=2, metrics=["output_error"])


def test_by_hand():
    # Dense: both rows 3/4 * 8 + 1/4 * 4 = 7. On the diagonal: 8 and 4. Off by 1 and 3.
    found = error(ps.window(0, 0), weighted([3, 1], values=[8, 4])).output_error
    assert found.rel_l2 == pytest.approx((10 / 98) ** 0.5)
    assert found.rel_l1 == pytest.approx(4 / 14)
    assert found.cosine == pytest.approx((7 * 8 + 7 * 4) / (98 * 80) ** 0.5)


def test_heads_are_stacked_and_layers_averaged():
    # Head 0 as above; head 1 spends 1/2, 1/2 on 2 and 0: dense 1, on the diagonal 2 and 0.
    report = error(ps.window(0, 0), weighted([[3, 1], [1, 1]], values=[[8, 4], [2, 0]]), weighted([1, 1], [5, 5]))
    heads = [head.output_error.rel_l2 for head in report.layers[0].heads]
    assert heads == pytest.approx([(10 / 98) ** 0.5, 1])
    assert report.layers[0].output_error.rel_l2 == pytest.approx((12 / 100) ** 0.5)
    assert report.layers[1].output_error.rel_l2 == 0  # equal values: whatever is dropped, the output stays
    assert report.output_error.rel_l2 == pytest.approx((12 / 100) ** 0.5 / 2)


def test_an_empty_row_outputs_0():
    # Dense: 2 in both rows. Row 0 keeps everything, row 1 nothing.
    found = error(ps.rect(range(0, 1), range(0, 2)), weighted([1, 1], values=[3, 1])).output_error
    assert found.rel_l2 == pytest.approx((4 / 8) ** 0.5)
    assert found.rel_l1 == pytest.approx(2 / 4)


def test_nothing_kept_has_no_direction():
    found = error(ps.empty, weighted([1, 1])).output_error
    assert (found.rel_l2, found.rel_l1, found.cosine) == (1, 1, None)


def test_an_output_of_0_has_no_relative_error():
    report = error(ps.dense, weighted([1, 1], values=[0, 0]), weighted([1, 1]))
    assert vars(report.layers[0].output_error) == {"rel_l2": None, "rel_l1": None, "cosine": None}
    assert report.output_error.rel_l2 is None  # not the mean of the other layer alone


def test_the_patterns_softmax_is_its_own_even_where_it_keeps_next_to_nothing():
    # Key 0 outweighs keys 1 and 2 by e^500; without it they share the row 1 : 3.
    k = torch.tensor([[[500.0], [0.0], [1.0986123]]])
    layer = LayerCapture(torch.ones(1, 3, 1), k, torch.tensor([[[1.0], [4.0], [8.0]]]))
    found = error(ps.globals(cols=(1, 2)), layer).output_error
    assert found.rel_l2 == pytest.approx(7 - 1)
