"""Damage by hand, and what it is for: heads that lose everything are not hidden by those that lose nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_layers_weigh_what_the_model_minds_by_hand():
    # As above: on the diagonal the first layer's rows keep 3/4 and 1/4, the second's 1/2 each.
    pair = weighted([3, 1], values=[8, 4]), weighted([1, 1], values=[2, 0])
    cosine, other = (7 * 8 + 7 * 4) / (98 * 80) ** 0.5, 2 / (2 * 4) ** 0.5
    squares = ((1 / 4) ** 2 + (3 / 4) ** 2 + 2 * (1 / 2) ** 2) / 4
    capture = capture_of(*pair, first=3)
    found = analyze(ps.window(0, 0), capture, block=2, metrics=["damage"], sensitivity=[1, 3])
    turned = (1 / 4 * (1 - cosine) ** 8 + 3 / 4 * (1 - other) ** 8) ** (1 / 8)
    assert found.weighted_damage == pytest.approx(squares * turned)
    # A layer or a head alone is weighed against nothing, whatever its weight.
    for weights in ([1, 3], [0, 3]):
        found = analyze(ps.window(0, 0), capture, metrics=["damage"], sensitivity=weights)
        alone = (1 / 16 + 9 / 16) / 2 * (1 - cosine)
        assert found.layers[0].weighted_damage == pytest.approx(alone)
        assert found.layers[0].heads[0].weighted_damage == pytest.approx(alone)
    # Weights belong to layers, however many are measured and in which order.
    first, second = (
        analyze(ps.window(0, 0), capture, layers=layers, metrics=["damage"], sensitivity=[1, 3]).weighted_damage
        for layers in ([3, 4], [4, 3])
    )
    assert first == pytest.approx(second)


def test_without_sensitivity_there_is_no_weighted_figure_and_with_none_to_weigh_it_is_none():
    capture = capture_of(weighted([3, 1]), weighted([1, 1]))
    assert "weighted_damage" not in analyze(ps.sink(1), capture, metrics=["damage"]).figures
    found = analyze(ps.sink(1), capture, layers=[0], metrics=["damage"], sensitivity=[0, 1])
    assert found.figures["weighted_damage"] is None
    silent = capture_of(weighted([1, 1], values=[0, 0]))
    assert analyze(ps.sink(1), silent, metrics=["damage"], sensitivity=[1]).figures["weighted_damage"] is None


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], r"expected one weight for each of the capture's 2 layers as its sensitivity, got \[1\]; give them in"),
        ("12", "expected one weight for each of the capture's 2 layers as its sensitivity, got '12'"),
        ([1, -1], "expected a layer's sensitivity to be a finite number from 0 up, got -1; a layer that the loss"),
        ([1, float("nan")], "finite number from 0 up, got nan"),
        ([True, 1], "finite number from 0 up, got True"),
        ([0, 0], "expected a layer that the loss minds, got a sensitivity of 0 for all; leave it out"),
    ],
)
def test_weights_that_are_none(weights, message):
    capture = capture_of(weighted([3, 1]), weighted([1, 1]))
    with pytest.raises(ps.StudioError, match=message):
        analyze(ps.sink(1), capture, metrics=["damage"], sensitivity=weights)
    with pytest.raises(ps.StudioError, match="expected a Capture, got int"):
        analyze(ps.sink(1), 3, sensitivity=weights)  # pyright: ignore[reportArgumentType]


@given(studies(), st.lists(st.floats(0.01, 100), min_size=2, max_size=2), st.floats(0.01, 100))
def test_weighted_damage_is_what_rows_and_heads_say(study, weights, factor):
    capture, pattern, block = study
    weights = weights[: len(capture.layers)]
    squares, each = [], []
    for layer in capture.layers:
        brute = Brute(capture, layer, pattern, block)
        o, sparse = brute.outputs  # [heads, rows, head_dim]
        size = (np.square(o).sum((1, 2)) * np.square(sparse).sum((1, 2))) ** 0.5
        cosine = np.where(size > 0, (o * sparse).sum((1, 2)) / np.where(size > 0, size, 1), 0)
        squares.append(np.square(1 - brute.recall))
        each.append(((1 - cosine.clip(0, 1)) ** 8).mean())
    wanted = np.concatenate(squares, None).mean() * np.average(each, weights=weights) ** 0.125
    found, scaled = (
        analyze(pattern, capture, block=block, metrics=["damage"], sensitivity=one).weighted_damage
        for one in (weights, [factor * weight for weight in weights])
    )
    assert found == pytest.approx(wanted, abs=1e-4)
    assert scaled == pytest.approx(found)  # only ratios count
    assert 0 <= found <= 1
