"""Flops and bytes by hand and against the dense mask; the estimate against the times that it was fitted to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.metrics import analyze, layout_cost
from pattern_studio.metrics.cost import CALIBRATIONS, PRODUCTS
from tests import strategies
from tests.metrics.captures import capture_of, weighted

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-28-h100-d128.json"


def test_by_hand():
    # Three tokens in blocks of 2: tiles (0, 0), (1, 0) and (1, 1), the last ones ragged: 4 + 2 + 1 pairs.
    cost = layout_cost(ps.lower(ps.causal, q_len=3, heads=2, block=2), head_dim=8, kv_heads=1)
    assert cost.forward_flops == 2 * 4 * 8 * 7
    assert cost.backward_flops == 2 * 10 * 8 * 7
    own = 2 * 3 * (2 * 8 * 2 + 4)
    assert cost.bytes == own + 2 * (2 + 3) * 2 * 8 * 2  # block 0 loads two keys with their values, block 1 three
    assert cost.least_bytes == own + 3 * 2 * 8 * 2
    assert cost.intensity == cost.forward_flops / cost.bytes


def test_batch_multiplies_all_but_the_call():
    layout = ps.lower(ps.causal, q_len=1024, heads=2)
    one, four = (layout_cost(layout, 128, batch=batch) for batch in (1, 4))
    assert (four.forward_flops, four.bytes, four.least_bytes) == tuple(
        4 * n for n in (one.forward_flops, one.bytes, one.least_bytes)
    )
    call = CALIBRATIONS["forward"].call_ms
    assert four.forward_ms - call == pytest.approx(4 * (one.forward_ms - call))


@settings(max_examples=25, deadline=None)
@given(strategies.plain, strategies.problems(), strategies.blocks)
def test_equals_the_dense_mask(pattern, problem, block):
    cost = layout_cost(ps.lower(pattern, problem, block=block), head_dim=4)
    mask = ps.dense_mask(pattern, problem, block=block)
    block_q, block_k = ps.lower(pattern, problem, block=block).block
    pairs = keys = 0
    for head in mask:
        for row in range(0, problem.q_len, block_q):
            for key in range(0, problem.kv_len, block_k):
                tile = head[row : row + block_q, key : key + block_k]
                pairs, keys = pairs + tile.any() * tile.size, keys + tile.any() * tile.shape[1]
    assert cost.forward_flops == 4 * 4 * pairs
    own = problem.heads * problem.q_len * (2 * 4 * 2 + 4)
    assert cost.bytes == own + keys * 2 * 4 * 2
    assert (cost.intensity is None) == (pairs == 0)


def test_heads_and_layers_add_up():
    pattern = ps.heads({0: ps.causal, 1: ps.sink(1)})
    layer = weighted(np.ones((2, 6)))
    report = analyze(pattern, capture_of(layer, layer, causal=True), block=2, metrics=["cost"])
    whole, first = report.figures["cost"], report.layers[0]
    assert whole.forward_flops == 2 * sum(head.figures["cost"].forward_flops for head in first.heads)
    assert whole.forward_ms == pytest.approx(2 * first.figures["cost"].forward_ms)
    assert first.heads[0].figures["cost"].forward_ms is None


def measured(name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = json.loads(RESULTS.read_text())["rows"]
    chosen = [row for row in rows if row["arm"] == "ours" and row["pass"] == name]
    flops = [
        PRODUCTS[name] * 2 * s["D"] * s["B"] * s["H"] * row["density"] * s["S"] ** 2
        for row in chosen
        for s in [row["shape"]]
    ]
    return np.array(flops), np.array([row["ms"] for row in chosen])


def fitted(flops, ms):
    design = np.stack([np.ones(len(ms)), flops / 1e9], 1)
    call, per = np.linalg.lstsq(design / ms[:, None], np.ones(len(ms)), rcond=None)[0]
    return call, 1 / per


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_the_stated_error_is_that_of_cells_left_out(name):
    flops, ms = measured(name)
    stated = CALIBRATIONS[name]
    assert fitted(flops, ms) == (pytest.approx(stated.call_ms, rel=1e-3), pytest.approx(stated.teraflops, rel=1e-3))
    errors = []
    for at in range(len(ms)):
        call, rate = fitted(np.delete(flops, at), np.delete(ms, at))
        errors.append(abs((call + flops[at] / 1e9 / rate) / ms[at] - 1))
    assert len(errors) == 10
    assert np.median(errors) == pytest.approx(stated.error, abs=1e-3)
    assert max(errors) == pytest.approx(stated.worst, abs=1e-3)


def test_a_measured_cell_is_estimated_as_well_as_stated():
    from benchmarks.cases import local

    layout = ps.lower(local(0.05, 32768, 128), q_len=32768, heads=16)
    cost = layout_cost(layout, head_dim=128)
    assert cost.measured_like
    assert cost.forward_ms == pytest.approx(1.4753, rel=CALIBRATIONS["forward"].worst)
    assert cost.backward_ms == pytest.approx(3.5145, rel=CALIBRATIONS["backward"].worst)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("expected KV heads that divide the 2 heads, got 3; correct kv_heads", {"head_dim": 8, "kv_heads": 3}),
        ("head_dim must lie between 1 and", {"head_dim": 0}),
    ],
)
def test_errors(message, options):
    with pytest.raises(ps.StudioError, match=message):
        layout_cost(ps.lower(ps.causal, q_len=4, heads=2), **options)
