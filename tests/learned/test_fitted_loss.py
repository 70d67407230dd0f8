"""The benchmark of fitted patterns' loss: what it runs first, and that the kept figures hang together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import fitted_loss

KEPT = sorted((Path(fitted_loss.__file__).parent / "results").glob("*-fitted-loss.json"))


def test_fits_to_the_scored_text_come_first():
    order = list(fitted_loss.asked(["tiles by mass"], [(64, 8), (64, 1)]))
    assert [own for *_, own in order] == [True] * 4 + [False] * 4
    assert order[0] == ("tiles by mass", (64, 8), 0.10, True)
    assert len(set(order)) == 8


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
