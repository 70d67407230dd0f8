"""Distances of kept pairs, by hand and against the dense mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.metrics import analyze
from pattern_studio.metrics.locality import PairBand
from tests.metrics.captures import Brute, capture_of, studies, weighted


def locality(pattern, capture, **options):
    return analyze(pattern, capture, metrics=["locality"], **options).figures["locality"]


def test_by_hand():
    # Four causal queries with themselves and the one before: 4 pairs at distance 0 of 4, 3 at distance 1 of 3.
    found = locality(ps.causal & ps.window(1, 0), capture_of(weighted([1, 1, 1, 1]), causal=True))
    assert found.mean_distance == pytest.approx(3 / 7)
    assert found.dense_distance == pytest.approx((3 * 1 + 2 * 2 + 1 * 3) / 10)
    assert found.near == 1
    assert found.bands == (PairBand(0, 0, 4, 1.0), PairBand(1, 3, 3, 0.5))


def test_both_sides_count_where_both_are_seen():
    found = locality(ps.window(1, 1), capture_of(weighted([1, 1, 1, 1])))
    assert found.bands == (PairBand(0, 0, 4, 1.0), PairBand(1, 3, 6, 0.5))


def test_pairs_far_away_are_not_near():
    found = locality(ps.sink(1), capture_of(weighted(np.ones(200)), causal=True))
    assert found.near == 128 / 200


def test_nothing_kept_is_none():
    found = locality(ps.empty, capture_of(weighted([1, 1])))
    assert (found.near, found.mean_distance, found.bands[0].density) == (None, None, 0)


@settings(max_examples=30, deadline=None)
@given(studies())
def test_equals_the_dense_mask(study):
    capture, pattern, block = study
    report = analyze(pattern, capture, block=block, metrics=["locality", "diagonal_density"])
    masks, rows = [], 0
    for number in capture.layers:
        brute = Brute(capture, number, pattern, block)
        masks += [(brute.mask, np.broadcast_to(brute.dense_mask, brute.mask.shape))]
        rows += brute.mask.shape[0] * brute.mask.shape[1]
    away = np.abs(np.subtract.outer(np.arange(len(capture.tokens)), np.arange(len(capture.tokens))))
    pairs, total = (sum((mask[at] * away).sum() for mask in masks) for at in (0, 1))
    found = report.figures["locality"]
    count = sum(mask.sum() for mask, _ in masks)
    assert found.mean_distance == (pytest.approx(pairs / count) if count else None)
    assert found.dense_distance == pytest.approx(total / sum(mask.sum() for _, mask in masks))
    for band in found.bands:
        inside = (away >= band.first) & (away <= band.last)
        assert band.pairs == sum(mask[:, inside].sum() for mask, _ in masks)
        assert band.density == pytest.approx(band.pairs / sum(mask[:, inside].sum() for _, mask in masks))
    own = sum(mask.diagonal(axis1=1, axis2=2).sum() for mask, _ in masks)
    assert report.figures["diagonal_density"] == pytest.approx(own / rows)
