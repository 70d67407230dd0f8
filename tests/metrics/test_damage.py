"""Damage by hand, and what it is for: heads that lose everything are not hidden by those that lose nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import pattern_studio as ps
from pattern_studio.metrics import analyze
from tests.metrics.captures import Brute, capture_of, studies, weighted


def damage(pattern, *layers, causal=False):
    return analyze(pattern, capture_of(*layers, causal=causal), block=2, metrics=["damage"])


def test_by_hand():
    # Dense: both rows 3/4 * 8 + 1/4 * 4 = 7. On the diagonal: 8 and 4, recall 3/4 and 1/4.
    cosine = (7 * 8 + 7 * 4) / (98 * 80) ** 0.5
    found = damage(ps.window(0, 0), weighted([3, 1], values=[8, 4]))
    assert found.damage == pytest.approx((0.5 * (1 - cosine)) ** 0.5)
    # A second head and layer: 1/2 lost, dense 1 and 1, sparse 2 and 0.
    other = 1 - 2 / (2 * 4) ** 0.5
    found = damage(ps.window(0, 0), weighted([3, 1], values=[8, 4]), weighted([1, 1], values=[2, 0]))
    turned = (((1 - cosine) ** 2 + other**2) / 2) ** 0.5
    assert found.damage == pytest.approx((0.5 * turned) ** 0.5)
    assert found.layers[1].heads[0].damage == pytest.approx((0.5 * other) ** 0.5)


def test_starved_heads_are_not_hidden():
    # Two heads that keep all and two that lose 15/16 of what they attend to keep more than four that lose a half.
    lopsided, even = weighted([[15, 1]] * 4, [[1, -1]] * 4), weighted([[1, 1]] * 4, [[1, 0]] * 4)
    second = ps.globals(cols=(1,))
    mixed = ps.heads({range(0, 2): ps.dense, range(2, 4): second})
    starved, halved = (
        analyze(pattern, capture_of(layer), metrics=["damage", "recall"])
        for pattern, layer in ((mixed, lopsided), (second, even))
    )
    assert starved.recall.mean > halved.recall.mean
    assert starved.damage > halved.damage
    assert damage(second, lopsided).damage > starved.damage


def test_ends_of_the_scale():
    assert damage(ps.dense, weighted([3, 1], values=[8, 4])).damage == 0
    assert damage(ps.empty, weighted([3, 1], values=[8, 4])).damage == 1
    assert damage(ps.empty, weighted([1, 1], values=[0, 0])).damage is None


@given(studies())
def test_it_is_what_the_heads_recall_and_cosine_say(study):
    capture, pattern, block = study
    found = analyze(pattern, capture, block=block, metrics=["damage"]).damage
    lost, turned, dense = [], [], 0.0
    for layer in capture.layers:
        brute = Brute(capture, layer, pattern, block)
        o, sparse = brute.outputs  # [heads, rows, head_dim]
        size = (np.square(o).sum((1, 2)) * np.square(sparse).sum((1, 2))) ** 0.5
        lost += (1 - brute.recall.mean(1)).clip(0, 1).tolist()
        cosine = np.where(size > 0, (o * sparse).sum((1, 2)) / np.where(size > 0, size, 1), 0)
        turned += (1 - cosine.clip(0, 1)).tolist()
        dense += np.square(o).sum()
    assert dense > 0
    wanted = np.mean(np.power(lost, 4)) ** 0.25 * np.mean(np.square(turned)) ** 0.5
    assert found == pytest.approx(wanted**0.5, abs=2e-3)  # a root: 4e-6 of float32 are 2e-3 near 0
