"""Minded damage by hand and by brute force, what it sees that others do not, and when there is none."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.capture import LayerMinds, Minds
from pattern_studio.metrics import analyze
from tests.metrics.captures import Brute, capture_of, studies, weighted


def minds(rows, projection, stream) -> LayerMinds:
    return LayerMinds(*(torch.tensor(part, dtype=torch.float32) for part in (rows, projection, stream)))


def measured(pattern, capture, **given):
    return analyze(pattern, capture, block=2, metrics=["minded_damage"], **given)


# Dense: all rows 7. On the diagonal: 8, 4, 8, 4, and 3/8 or 1/8 of the mass is kept.
LAYER = weighted([3, 1, 3, 1], values=[8, 4, 8, 4])
COSINE = (2 * 7 * 8 + 2 * 7 * 4) / (4 * 49 * 160) ** 0.5


def test_by_hand():
    # The first half of the rows counts in the cosine only. Of the second the first is minded three times as much.
    capture = replace(capture_of(LAYER, first=5), minds=Minds({5: minds([[9, 9, 3, 1]], [[2]], [1, 1, 4, 12])}))
    found = measured(ps.window(0, 0), capture, sensitivity=[0.5])
    lost = (3 * (5 / 8) ** 2 + 1 * (7 / 8) ** 2) / 4
    stirred = ((2 * 1) ** 2 / 4 + (2 * -3) ** 2 / 12) / 2
    assert vars(found.figures["minded"]) == pytest.approx({"lost": lost, "turned": 1 - COSINE, "stirred": stirred})
    assert found.minded_damage == pytest.approx((lost * (1 - COSINE) * stirred) ** 0.5)
    assert found.layers[0].heads[0].minded_damage == pytest.approx(found.minded_damage)


def test_layers_by_hand():
    # A second layer loses half of each row: 1 each, and 2 or 0 on the diagonal; only what is stirred most counts.
    other = weighted([1, 1, 1, 1], values=[2, 0, 2, 0])
    of = {5: minds([[0, 0, 1, 1]], [[1]], [1] * 4), 6: minds([[0, 0, 2, 0]], [[1], [3]], [1, 1, 2, 2])}
    capture = replace(capture_of(LAYER, other, first=5), minds=Minds(of), sensitivity=(1, 3))
    found = measured(ps.window(0, 0), capture)
    lost = ((5 / 8) ** 2 + (7 / 8) ** 2 + 2 * (3 / 4) ** 2) / 4
    way = (1 / 4 * (1 - COSINE) ** 8 + 3 / 4 * (1 - 4 / (4 * 8) ** 0.5) ** 8) ** (1 / 8)
    stirred = [(1 + 9) / 2, (10 / 2 + 10 / 2) / 2]
    assert found.figures["minded"].stirred == pytest.approx(max(stirred))
    assert found.minded_damage == pytest.approx((lost * way * max(stirred)) ** 0.5)
    # Alone a layer has none to be weighed against.
    alone = ((3 / 4) ** 2 * (1 - 4 / (4 * 8) ** 0.5) * stirred[1]) ** 0.5
    assert found.layers[1].minded_damage == pytest.approx(alone)
    assert measured(ps.window(0, 0), capture, layers=[6]).minded_damage == pytest.approx(alone)


def test_ends_of_the_scale_and_what_is_not_known():
    of = Minds({0: minds([[0, 0, 1, 1]], [[1]], [1] * 4)})
    capture = replace(capture_of(LAYER), minds=of, sensitivity=(1,))
    assert measured(ps.dense, capture).minded_damage == 0
    assert vars(measured(ps.empty, capture).figures["minded"]) == {"lost": 1, "turned": 1, "stirred": 49}
    plain = measured(ps.sink(1), replace(capture, sensitivity=None))
    assert "minded_damage" not in plain.figures
    assert plain.figures["minded"].turned is None
    assert plain.figures["minded"].lost > 0
    assert not measured(ps.sink(1), replace(capture, minds=None)).figures
    assert measured(ps.sink(1), replace(capture, minds=None)).minded_damage is None
    silent = replace(capture_of(weighted([1, 1], values=[0, 0])), minds=Minds({0: minds([[1, 1]], [[1]], [1, 1])}))
    early = replace(capture_of(LAYER), minds=Minds({0: minds([[1, 1, 0, 0]], [[1]], [1] * 4)}))
    for one in (silent, early):  # no output, no row that counts
        figures = measured(ps.sink(1), replace(one, sensitivity=(1,))).figures
        assert figures == {"minded": None, "minded_damage": None}
    two = replace(capture_of(LAYER, LAYER), minds=Minds({0: of.layers[0], 1: of.layers[0]}), sensitivity=(1, 0))
    assert measured(ps.sink(1), two, layers=[1]).figures["minded_damage"] is None


def test_it_sees_what_a_head_on_the_sink_begins_to_say():
    # Three quarters of the mass on a first key of no value. Recall and cosine are those of a head that says much.
    quiet, loud = (weighted([12, 1, 1, 1, 1], values=[0, *[size] * 4]) for size in (0.01, 10))
    pattern = ps.dense - ps.globals(cols=(0,))
    found = []
    for layer in (quiet, loud):
        of = Minds({0: minds([[1] * 5], [[1]], [1] * 5)})
        found.append(measured(pattern, replace(capture_of(layer), minds=of, sensitivity=(1,))).figures["minded"])
    assert found[0].lost == pytest.approx(found[1].lost)
    assert found[1].stirred == pytest.approx(1e6 * found[0].stirred)


@given(studies(), st.integers(0, 2**31), st.integers(1, 5))
def test_by_brute_force(study, seed, width):
    capture, pattern, block = study
    random = np.random.default_rng(seed)
    layers, of = list(capture.layers), {}
    for number in layers:
        layer = capture.layers[number]
        shape = layer.heads, layer.tokens
        of[number] = minds(
            random.exponential(size=shape), random.normal(size=(width, layer.heads * layer.head_dim)),
            random.exponential(size=layer.tokens) + 0.1,
        )  # fmt: skip
    weights = random.exponential(size=len(layers)).tolist()
    capture = replace(capture, minds=Minds(of), sensitivity=weights)
    half = slice(len(capture.tokens) // 2, None)
    lost, way, stirred = np.zeros(2), [], []
    for number in layers:
        brute, some = Brute(capture, number, pattern, block), {k: v.numpy() for k, v in of[number].named().items()}
        o, sparse = brute.outputs  # [heads, rows, head_dim]
        size = (np.square(o).sum((1, 2)) * np.square(sparse).sum((1, 2))) ** 0.5
        cosine = np.where(size > 0, (o * sparse).sum((1, 2)) / np.where(size > 0, size, 1), 0)
        way.append(((1 - cosine.clip(0, 1)) ** 8).mean())
        rows = some["rows"].astype(float)[:, half]
        lost += (rows * np.square(1 - brute.recall[:, half])).sum(), rows.sum()
        change = (sparse - o)[:, half].transpose(1, 0, 2).reshape(-1, some["projection"].shape[1])
        moved = np.square(change @ some["projection"].T.astype(float)).sum(1)
        stirred.append((moved / some["stream"][half]).mean())
    # A few rows at a time, so that stretches begin and end inside of the first and the second half.
    with (
        mock.patch.multiple("pattern_studio.metrics.chunk", CELLS=300, MAX_ROWS=7),
        mock.patch("pattern_studio.metrics.minded_damage.ROWS", 3),
    ):
        found = analyze(pattern, capture, block=block, metrics=["minded_damage"])
    wanted = lost[0] / lost[1], np.average(way, weights=weights) ** 0.125, max(stirred)
    figures = vars(found.figures["minded"])
    assert tuple(figures.values()) == pytest.approx(wanted, rel=1e-3, abs=1e-3)
    assert found.minded_damage == pytest.approx(np.prod(list(figures.values())) ** 0.5)
    assert [one.figures["minded"].stirred for one in found.layers] == pytest.approx(stirred, rel=1e-3, abs=1e-4)
