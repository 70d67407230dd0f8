"""Distillation on real attention: the loss falls, on rows that were held out too, and what is measured says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture import bundled
from pattern_studio.learned import BlockGate, calibrate, distill, mass_loss, quality, to_pattern
from pattern_studio.metrics import row_recall
from tests.metrics.captures import capture_of, weighted

BLOCK = (64, 8)
LATER = range(512, 1024)


@pytest.fixture(scope="module")
def trained():
    gate = BlockGate(9, 3, 64, BLOCK, scale=bundled().scale)
    return gate, distill(gate, bundled(), 7, fit_rows=512, steps=20)


def test_the_loss_falls_on_rows_that_were_held_out(trained):
    _, found = trained
    assert len(found.losses) == 20
    assert found.losses[-1] < 0.5 * found.losses[0]
    assert found.held_out_after < 0.8 * found.held_out_before


def test_it_keeps_more_than_untrained_at_one_coverage_and_costs_less(trained):
    """What training buys: the predicted mass is nearer to the measured one on rows it never saw."""
    gate, _ = trained
    raw = BlockGate(9, 3, 64, BLOCK, scale=bundled().scale)
    ask = {"rows": LATER, "quality_threshold": 0.8, "diagonal": False}
    before, after = (quality(one, bundled(), 7, **ask) for one in (raw, gate))
    assert abs(after.predicted - after.measured) < abs(before.predicted - before.measured)
    assert after.on.startswith("rows 512 to 1023 of Jargon File")
    assert after.on.endswith("layer 7")


def test_measured_is_the_recall_of_the_pattern(trained):
    """The same choice as text, lowered again and measured row by row."""
    gate, _ = trained
    layer = bundled().layers[7]
    mask = gate.choose(layer.q[None], layer.k[None], density=0.25)
    recall = row_recall(to_pattern(mask[0], BLOCK), bundled(), 7, BLOCK)
    found = quality(gate, bundled(), 7, rows=LATER, density=0.25)
    assert found.measured == pytest.approx(recall[:, 512:].mean(), abs=1e-5)
    assert 0.2 < found.density < 0.3  # of these rows: the budget holds over all of them


def test_a_run_can_be_repeated():
    def run() -> BlockGate:
        gate = BlockGate(9, 3, 64, (128, 128), scale=bundled().scale)
        distill(gate, bundled(), 20, steps=3)
        return gate

    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_calibration_reaches_the_threshold_with_the_least_it_tried(trained):
    gate, _ = trained
    temperature = calibrate(gate, bundled(), 7, 0.85, rows=LATER)
    reached = quality(gate, bundled(), 7, rows=LATER, quality_threshold=0.85, temperature=temperature)
    assert reached.measured >= 0.85
    below = quality(gate, bundled(), 7, rows=LATER, quality_threshold=0.85, temperature=temperature * 0.9)
    assert below.measured < reached.measured


def test_the_loss_by_hand():
    target = torch.tensor([[[[1.0, 0.0], [0.25, 0.75]], [[0.0, 0.0], [0.5, 0.5]]]])  # one row without any mass
    log_mass = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]]).log()
    expected = (0 + 0.25 * np.log(0.5) + 0.75 * np.log(1.5) + 0) / 3
    assert float(mass_loss(log_mass, target)) == pytest.approx(expected, rel=1e-6)


def test_errors():
    capture = capture_of(weighted([1.0, 2.0, 3.0]))
    gate = BlockGate(1, 1, 1, 1)
    with pytest.raises(ps.StudioError, match=r"among the capture's \[0\], got \[5\]"):
        distill(gate, capture, 5)
    with pytest.raises(ps.StudioError, match=r"a gate of the capture's scale 1, got 2; pass scale="):
        distill(BlockGate(1, 1, 1, 1, scale=2.0), capture, 0)
    with pytest.raises(ps.StudioError, match=r"heads, KV heads and head_dim \(2, 1, 1\), got \(1, 1, 1\)"):
        quality(BlockGate(2, 1, 1, 1, scale=1.0), capture, 0, density=1.0)
    with pytest.raises(
        ps.StudioError, match=r"rows within 3 tokens that hold a block of 1, got rows 2 to 3; take more"
    ):
        quality(gate, capture, 0, density=1.0, rows=range(2, 4))
    with pytest.raises(ps.StudioError, match=r"rows within 1024 tokens that hold a block of 64, got rows 0 to 62"):
        distill(BlockGate(9, 3, 64, BLOCK, scale=bundled().scale), bundled(), 7, fit_rows=63)
    # A model that answers the opposite of what the scores say can't be calibrated.
    wrong = BlockGate(1, 1, 1, (3, 1), scale=1.0)
    wrong.column.data.fill_(-1000.0)
    skewed = capture_of(weighted([1e-6, 1e-6, 1e6]))
    with pytest.raises(ps.StudioError, match=r"expected a measured mass of 0\.9 at some temperature up to 8, got"):
        calibrate(wrong, skewed, 0, 0.9, diagonal=False)
