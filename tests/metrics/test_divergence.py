"""KL, total variation and Jensen-Shannon by hand, and against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.capture import LayerCapture
from pattern_studio.metrics import analyze
from tests.metrics.captures import Brute, capture_of, studies, weighted


def divergence(pattern, capture, **options):
    return analyze(pattern, capture, metrics=["divergence"], **options).figures["divergence"]


def test_by_hand():
    # Rows keep 1/4 and 3/4.
    found = divergence(ps.window(0, 0), capture_of(weighted([1, 3])))
    assert found.kl == pytest.approx((math.log(4) + math.log(4 / 3)) / 2)
    assert found.total_variation == pytest.approx(0.5)
    assert found.infinite_rows == 0


def test_nothing_dropped():
    found = divergence(ps.dense, capture_of(weighted([1, 3])))
    assert vars(found) == {"kl": 0, "total_variation": 0, "jensen_shannon": 0, "infinite_rows": 0}
    assert math.copysign(1, found.kl) == 1


def test_an_empty_row_is_as_far_as_can_be():
    report = analyze(ps.empty, capture_of(weighted([1, 3])), metrics=["divergence"])
    found = report.figures["divergence"]
    assert (found.kl, found.total_variation, found.infinite_rows) == (math.inf, 1, 2)
    assert found.jensen_shannon == pytest.approx(math.log(2))
    assert report.as_dict()["divergence"]["kl"] is None  # JSON has no infinity


def test_a_row_that_keeps_next_to_nothing_is_finite():
    capture = capture_of(LayerCapture(torch.ones(1, 2, 1), torch.tensor([[[0.0], [500.0]]]), torch.ones(1, 2, 1)))
    found = divergence(ps.sink(1), capture)
    assert (found.kl, found.infinite_rows) == (pytest.approx(500), 0)


@settings(max_examples=40, deadline=None)
@given(studies())
def test_the_identities_hold_for_the_distributions_themselves(study):
    capture, pattern, block = study
    number = next(iter(capture.layers))
    brute = Brute(capture, number, pattern, block)
    found = divergence(pattern, capture, block=block, layers=[number])
    a, keeps = brute.dense, brute.recall > 0
    s = brute.kept / np.where(keeps, brute.recall, 1)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(s > 0, s * np.log(s / a), 0).sum(-1)
        middle = (a + s) / 2
        half = [np.where(p > 0, p * np.log(p / middle), 0).sum(-1) for p in (a, s)]
    variation = np.where(keeps, np.abs(a - s).sum(-1) / 2, 1)
    jensen_shannon = np.where(keeps, sum(half) / 2, math.log(2))
    assert found.infinite_rows == (~keeps).sum()
    assert found.kl == (pytest.approx(kl.mean(), rel=1e-5, abs=1e-6) if keeps.all() else math.inf)
    assert found.total_variation == pytest.approx(variation.mean(), abs=1e-6)
    assert found.jensen_shannon == pytest.approx(jensen_shannon.mean(), abs=1e-6)
