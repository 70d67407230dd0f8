"""analyze(): every figure against full float64 matrices, invariants, and errors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.capture import LayerMinds, Minds, bundled
from pattern_studio.metrics import METRICS, analyze, row_recall
from tests import strategies
from tests.metrics.captures import Brute, capture_of, random_captures, studies, weighted


@settings(max_examples=80, deadline=None)
@given(studies())
def test_equals_full_matrices(study):
    capture, pattern, block = study
    # Chunks of a few rows, so that they begin and end inside blocks.
    with mock.patch.multiple("pattern_studio.metrics.chunk", CELLS=300, MAX_ROWS=7):
        report = analyze(pattern, capture, block=block)
    brutes = [Brute(capture, number, pattern, block) for number in capture.layers]

    rows = np.concatenate([brute.recall.ravel() for brute in brutes])
    assert report.recall.mean == pytest.approx(rows.mean(), abs=1e-5)
    assert report.recall.p1 == pytest.approx(np.percentile(rows, 1), abs=1e-5)
    assert report.recall.min == pytest.approx(rows.min(), abs=1e-5)
    assert report.oracle_recall == pytest.approx(np.concatenate([b.oracle for b in brutes]).mean(), abs=1e-5)
    assert report.regret == pytest.approx(report.oracle_recall - report.recall.mean, abs=1e-5)
    assert report.figures["pairs"] == sum(brute.allowed.sum() for brute in brutes)
    assert report.figures["pairs_outside_dense"] == sum((b.allowed & ~b.dense_mask).sum() for b in brutes)
    assert report.figures["empty_rows"] == sum((~brute.mask.any(-1)).sum() for brute in brutes)

    for layer, brute in zip(report.layers, brutes, strict=True):
        np.testing.assert_allclose(layer.row_recall, brute.recall, atol=1e-5)
        for head in layer.heads:
            h = head.head
            assert head.recall.mean == pytest.approx(brute.recall[h].mean(), abs=1e-5)
            assert head.oracle_recall == pytest.approx(brute.oracle[h], abs=1e-5)
            assert head.figures["pairs"] == brute.allowed[h].sum()
            assert head.figures["tiles"].active == (brute.tiles(brute.allowed)[h] > 0).sum()
            o, sparse = (output[h] for output in brute.outputs)
            off, size = np.linalg.norm(o - sparse), np.linalg.norm(o)
            assert head.output_error.rel_l2 == pytest.approx(off / size, abs=1e-4)
            assert head.output_error.rel_l1 == pytest.approx(np.abs(o - sparse).sum() / np.abs(o).sum(), abs=1e-4)
            if brute.mask[h].any():
                cosine = (o * sparse).sum() / size / np.linalg.norm(sparse)
                assert head.output_error.cosine == pytest.approx(cosine, abs=1e-4)
            _check_distance(head.figures["distance"], brute.dense[h], brute.kept[h])
            scores = np.where(brute.dense_mask, brute.scores[h], -np.inf)
            top = (scores >= -np.sort(-scores)[:, min(31, len(scores) - 1), None]) & brute.dense_mask
            share = (top & brute.mask[h]).sum(-1) / top.sum(-1)
            assert head.figures["top_k_recall"].mean == pytest.approx(share.mean(), abs=1e-6)
    json.dumps(report.as_dict(), allow_nan=False)


def _check_distance(found, dense, kept):
    n = len(dense)
    away = np.abs(np.arange(n)[:, None] - np.arange(n))
    assert found.mean_dense == pytest.approx((dense * away).sum() / n, abs=1e-4)
    for band in found.bands:
        inside = (away >= band.first) & (away <= band.last)
        assert band.dense == pytest.approx(dense[inside].sum() / n, abs=1e-5)
        assert band.kept == pytest.approx(kept[inside].sum() / n, abs=1e-5)
    assert found.bands[-1].last == n - 1


@settings(max_examples=40, deadline=None)
@given(studies())
def test_invariants(study):
    capture, pattern, block = study
    report = analyze(pattern, capture, block=block, metrics=["recall", "oracle", "density"])
    for part in [report, *report.layers, *(head for layer in report.layers for head in layer.heads)]:
        assert 0 <= part.recall.min <= part.recall.p1 <= 1
        assert part.recall.min <= part.recall.mean <= part.oracle_recall + 1e-12 <= 1 + 1e-12
        assert part.regret >= 0
        assert all(value is None or 0 <= value <= 1 for value in vars(part.figures["density"]).values())
    for layer in report.layers:
        brute = Brute(capture, layer.layer, pattern, block)
        o, sparse = brute.outputs
        largest = np.linalg.norm(brute.v, axis=-1).max(-1)
        bound = 2 * (1 - layer.row_recall) * largest[:, None]
        # An empty row outputs 0, and |o| alone is at most max |v|, half of what the bound allows it.
        assert (np.linalg.norm(o - sparse, axis=-1) <= bound + 1e-4 * largest[:, None]).all()


@settings(max_examples=25, deadline=None)
@given(random_captures())
def test_the_dense_mask_itself_loses_exactly_nothing(capture):
    for pattern in (ps.dense, ps.causal) if capture.causal else (ps.dense,):
        report = analyze(pattern, capture, block=8)
        assert vars(report.recall) == {"mean": 1, "p1": 1, "min": 1}
        assert (report.oracle_recall, report.regret) == (1, 0)
        assert (report.output_error.rel_l2, report.output_error.rel_l1) == (0, 0)
        assert report.figures["top_k_recall"].min == 1


@settings(max_examples=30, deadline=None)
@given(random_captures(), strategies.plain, strategies.plain)
def test_recall_never_falls_when_the_pattern_grows(capture, first, second):
    number = next(iter(capture.layers))
    one, other, union = (row_recall(pattern, capture, number) for pattern in (first, second, first | second))
    assert (union >= np.maximum(one, other) - 1e-6).all()  # float32 sums in another order


def test_a_pattern_wider_than_the_dense_mask_is_reported_and_keeps_no_more():
    capture = capture_of(weighted([1, 2, 3, 4]), causal=True)
    wide = analyze(ps.window(1, 1), capture, block=2)
    narrow = analyze(ps.causal & ps.window(1, 0), capture, block=2)
    assert wide.recall == narrow.recall
    assert wide.output_error == narrow.output_error
    assert (wide.figures["pairs"], wide.figures["pairs_outside_dense"]) == (10, 3)
    assert (narrow.figures["pairs"], narrow.figures["pairs_outside_dense"]) == (7, 0)


def test_rows_that_keep_only_what_the_dense_mask_excludes_are_empty():
    report = analyze(~ps.causal, capture_of(weighted([1, 1, 1]), causal=True), block=1)
    assert (report.recall.mean, report.figures["empty_rows"], report.figures["pairs_outside_dense"]) == (0, 3, 3)


def test_the_bundled_capture():
    report = analyze(ps.parse("causal & (window(63, 0) | sink(4))"), bundled())
    values = report.as_dict()
    first = ["weighted_damage", "damage", "recall", "output_error", "oracle_recall", "regret"]
    assert list(values)[:8] == ["pattern", "capture", *first]
    assert [layer["layer"] for layer in values["layers"]] == [7, 20]
    assert list(values["layers"][0])[:7] == ["layer", *first]
    assert [head["head"] for head in values["layers"][0]["heads"]] == list(range(9))
    for number in bundled().layers:
        brute = Brute(bundled(), number, ps.parse("causal & (window(63, 0) | sink(4))"), (128, 128))
        layer = next(layer for layer in report.layers if layer.layer == number)
        np.testing.assert_allclose(layer.row_recall, brute.recall, atol=1e-5)
        assert layer.oracle_recall == pytest.approx(brute.oracle.mean(), abs=1e-5)
        o, sparse = brute.outputs
        expected = np.linalg.norm(o - sparse) / np.linalg.norm(o)
        assert layer.output_error.rel_l2 == pytest.approx(expected, rel=1e-4)


def test_layers_and_metrics_are_chosen():
    report = analyze(ps.layers({7: ps.causal, 20: ps.sink(1)}), bundled(), layers=[20, 7], metrics=["recall"])
    assert [(layer.layer, layer.recall.min == 1) for layer in report.layers] == [(20, False), (7, True)]
    assert (report.oracle_recall, report.regret, report.output_error) == (None, None, None)
    assert report.as_dict()["regret"] is None
    assert "divergence" not in report.as_dict()
    without = analyze(ps.causal, bundled(), layers=[7], metrics=["density"])
    assert (without.recall, without.layers[0].row_recall) == (None, None)


def test_documents():
    capture = capture_of(weighted([1, 1, 1, 1]), causal=True)
    report = analyze(ps.docs & ps.causal, capture, docs=(2, 2), metrics=["recall"])
    assert report.layers[0].row_recall.tolist() == [pytest.approx([1, 1, 1 / 3, 1 / 2])]


def test_every_metric_is_in_the_report():
    minds = Minds({0: LayerMinds(torch.ones(1, 2), torch.ones(1, 1), torch.ones(2))})
    figures = analyze(ps.causal, replace(capture_of(weighted([1, 1])), minds=minds, sensitivity=(1,))).figures
    assert len(METRICS) == 15
    for key in (
        *("minded_damage", "minded", "weighted_damage"),
        *("damage", "recall", "worst_rows", "output_error", "oracle_recall", "regret", "divergence", "top_k_recall"),
        *("distance",),
        *("pairs", "density", "tiles", "block_efficiency", "empty_rows", "pairs_outside_dense"),
        *("row_density", "diagonal_density", "locality", "balance", "gqa_union", "cost"),
    ):
        assert key in figures


TWO_HEADS = capture_of(weighted([[1, 1]] * 2), first=7)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"the capture has 2 heads in layer 7, but head 1 has no pattern in heads\(\); it has 0",
            lambda: analyze(ps.heads({0: ps.causal}), TWO_HEADS),
        ),
        (
            r"expected a pattern for the 2 heads that the capture has in layer 7, got heads\(\) that goes up to "
            "head 11; assign heads 0 to 1, or use a capture of the model that the pattern is for",
            lambda: analyze(ps.causal & ps.heads({range(0, 12): ps.dense}), TWO_HEADS),
        ),
        (
            r"expected distinct layers among the capture's \[7\], got \[7, 3\]; choose from these",
            lambda: analyze(ps.causal, TWO_HEADS, layers=[7, 3]),
        ),
        (
            r"expected distinct layers among the capture's \[7\], got \[\]",
            lambda: analyze(ps.causal, TWO_HEADS, layers=[]),
        ),
        (r"expected a list of layers, got 7; write layers=\[7\]", lambda: analyze(ps.causal, TWO_HEADS, layers=7)),
        (r"expected distinct layers .* got \[7, 7\]", lambda: analyze(ps.causal, TWO_HEADS, layers=[7, 7])),
        (
            r"but layer 7 has no pattern in layers\(\); it has 0",
            lambda: analyze(ps.layers({0: ps.causal}), TWO_HEADS),
        ),
        ("expected a Capture, got str; read a file with Capture.load", lambda: analyze(ps.causal, "x.safetensors")),
        (
            r"expected a metric among minded_damage, damage, recall, .* got 'recal'; did you mean 'recall'\?",
            lambda: analyze(ps.causal, TWO_HEADS, metrics=["recal"]),
        ),
        (r"got 'speed'; choose from these", lambda: analyze(ps.causal, TWO_HEADS, metrics=["speed"])),
        ("document lengths must add up to kv_len 2", lambda: analyze(ps.docs, TWO_HEADS, docs=(3,))),
        ("docs needs the document lengths", lambda: analyze(ps.docs, TWO_HEADS)),
        ("expected a Pattern, got str; read text with parse", lambda: analyze("causal", TWO_HEADS)),
    ],
)
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()


def test_a_head_pattern_of_infinite_divergence_stays_json():
    report = analyze(ps.heads({0: ps.empty, 1: ps.dense}), TWO_HEADS)
    assert math.isinf(report.figures["divergence"].kl)
    assert report.layers[0].heads[1].figures["divergence"].kl == 0
    json.dumps(report.as_dict(), allow_nan=False)
