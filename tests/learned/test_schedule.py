"""Density over training: tightens while quality holds, goes back when it does not, and settles."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.capture import bundled
from pattern_studio.learned import SCORES, DensitySchedule, Tiling, top_k
from pattern_studio.metrics import block_mass


@given(st.lists(st.floats(0, 1), max_size=60), st.floats(0.05, 0.5), st.integers(1, 3))
def test_within_bounds_and_only_tighter_after_it_held(measurements, least, patience):
    schedule = DensitySchedule(start=0.5, least=least, quality=0.9, margin=0.05, patience=patience)
    before, run = schedule.density, 0
    for measured in measurements:
        after = schedule.update(measured)
        run = run + 1 if measured >= 0.9 else 0
        assert least <= after <= 0.5
        if after < before:
            assert run >= patience
            run = 0
        if measured < 0.85:
            assert after >= before
        elif measured < 0.9:
            assert after == before
        before = after


def test_it_settles_on_real_attention_where_the_quality_holds():
    """The quality is measured: what the scores' choice keeps of SmolLM2's layer 20 at the density of the moment."""
    layer, tiling = bundled().layers[20], Tiling(1024, 1024, (16, 16))
    scores = SCORES["mean_query"](layer.q[None], layer.k[None], tiling)
    mass = torch.from_numpy(block_mass(bundled(), 20, (16, 16)))

    def measured(density: float) -> float:
        return float((mass * top_k(scores, tiling, density)[0]).sum(-1).mean())

    schedule = DensitySchedule(start=0.8, least=0.1, quality=0.8)
    for _ in range(60):
        schedule.update(measured(schedule.density))
    edge = next(d for d in (n / 200 for n in range(20, 200)) if measured(d) >= 0.8)
    assert schedule.density == pytest.approx(edge, abs=0.02)


def test_a_checkpoint_goes_on_where_it_was():
    one = DensitySchedule(start=0.5, least=0.1, quality=0.9, patience=2)
    for measured in (0.95, 0.95, 0.8, 0.95):
        one.update(measured)
    two = DensitySchedule.from_state_dict(one.state_dict())
    assert [one.update(m) for m in (0.95, 0.95, 0.5)] == [two.update(m) for m in (0.95, 0.95, 0.5)]
    with pytest.raises(ps.StudioError, match=r"expected what state_dict\(\) gave, got keys \['start'\]"):
        DensitySchedule.from_state_dict({"start": 0.5})


@pytest.mark.parametrize("measured", [None, 1.5, -0.1, True, float("nan")])
def test_what_was_not_measured_is_an_error(measured):
    with pytest.raises(ps.StudioError, match="expected a measured quality from 0 to 1, got"):
        DensitySchedule().update(measured)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"start": 0.1, "least": 0.2}, "expected densities 0 < least <= start <= 1, got least 0.2 and start 0.1"),
        ({"quality": 0}, "expected quality above 0 and up to 1"),
        ({"factor": 1.0}, "factor between 0 and 1, got"),
        ({"start": "dense"}, "are numbers, got"),
        ({"patience": 0}, "patience must lie between 1"),
    ],
)
def test_values_that_make_no_schedule(values, words):
    with pytest.raises(ps.StudioError, match=words):
        DensitySchedule(**values)
