"""The benchmark of fitted patterns' loss: what it runs first, and that the kept figures hang together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import fitted_loss
from pattern_studio.capture.load import Loaded
from pattern_studio.capture.record import record
from tests.learned.test_loss_gradients import llama

KEPT = sorted((Path(fitted_loss.__file__).parent / "results").glob("*-fitted-loss.json"))


def test_fits_to_the_scored_text_come_first():
    order = list(fitted_loss.asked(["tiles by mass"], [(64, 8), (64, 1)]))
    assert [own for *_, own in order] == [True] * 4 + [False] * 4
    assert order[0] == ("tiles by mass", (64, 8), 0.10, True)
    assert len(set(order)) == 8


@pytest.mark.parametrize("way", fitted_loss.FITS)
def test_every_way_fits_every_layer_within_the_budget(way):
    model, ids = llama().float(), [n * n % 11 for n in range(128)]
    capture = record(
        model, {"input_ids": torch.tensor([ids])}, layers=[0, 1], model_name="toy", text="none", tokens=("t",) * 128
    )
    text = fitted_loss.Read("a text", tuple(ids), capture, Loaded(model, None, "toy"))
    other = replace(text, name="another")
    row = fitted_loss.measured(text.loaded, text, other, way, (8, 4), 0.25)
    assert 0.15 < row["achieved_block_density"] <= 0.25
    assert not row["fitted_on_scored_text"]
    assert row["aim"] is None
    assert fitted_loss.line(row).startswith(way)
    assert ("gradients" in vars(other)) == ("loss" in way)  # measured once, and only where it is asked for


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_kept_figures_hang_together(file):
    found = json.loads(file.read_text())
    assert found["machine"]["date"] in file.name
    assert found["rows"]
    for row in found["rows"]:
        assert row["achieved_block_density"] <= row["requested_block_density"]
        assert row["relative"] == pytest.approx(row["added"] / row["dense_loss"])
        assert row["loss"] == pytest.approx(row["dense_loss"] + row["added"])
        aimed = tuple(row["block"]) in fitted_loss.AIMED[row["requested_block_density"]]
        assert row["met"] == ((row["relative"] < row["aim"]) if aimed else None)
        assert (row["fitted_on"] in found["scored"]) == row["fitted_on_scored_text"]
        assert ("met" in fitted_loss.line(row)) == bool(row["met"])
