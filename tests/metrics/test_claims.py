"""The claims table: cells computed anew equal those that are kept, and its words follow its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.claims import BLOCKS, DENSITIES, FAMILIES, claim, pattern_of, to_markdown
from pattern_studio.capture import bundled
from tests.metrics.test_predictors import Small

FOLDER = Path(__file__).parents[2] / "gallery" / "claims"
KEPT = sorted(FOLDER.glob("????-??-??.json"))[-1]
# The predictors' tables are of another kind: test_predictors.py.
TABLES = sorted(path for path in FOLDER.glob("*.json") if not path.stem.endswith("-predictors"))
VALUES = json.loads(KEPT.read_text("utf-8"))


@pytest.mark.parametrize(
    ("family", "density", "block"),
    [("global_local", 0.5, (64, 64)), ("oracle", 0.1, (128, 128)), ("local_window", 0.02, (128, 128))],
)
def test_a_cell_is_what_the_file_says(family, density, block):
    (kept,) = (
        row
        for row in VALUES["claims"]
        if (row["family"], row["density"], tuple(row["block"])) == (family, density, block)
    )
    found = claim(family, density, block, bundled())
    assert (found.recall is None) == (kept["recall"] is None) == (kept["why_not"] is not None)
    for name in ("achieved", "recall", "recall_interval", "output_error"):
        expected = kept[name]
        assert getattr(found, name) == (None if expected is None else pytest.approx(expected, abs=1e-4))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_cell_is_there_and_the_table_is_made_from_them(path):
    values = json.loads(path.read_text("utf-8"))
    assert len(values["claims"]) == len(BLOCKS) * len(DENSITIES) * len(values.get("families", FAMILIES))
    assert to_markdown(values) == path.with_suffix(".md").read_text("utf-8")


def test_a_cell_of_a_model_has_its_loss_and_a_pattern_fitted_to_another_text():
    small = Small()
    found = claim("fitted", 0.5, (16, 16), small.capture, small)
    assert found.loss_added == pytest.approx(small.loss(pattern_of("fitted", 0.5, (16, 16), small.capture,
                                                                   small.fitted), (16, 16))["added"])  # fmt: skip
    assert 0.4 < found.achieved <= 0.5
    assert 0 < found.recall < 1
    assert "expected a capture to fit to" in claim("fitted", 0.5, (16, 16), bundled()).why_not
