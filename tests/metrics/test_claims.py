"""The claims table: cells computed anew equal those that are kept, and its words follow its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims import BLOCKS, DENSITIES, FAMILIES, claim, not_run, pattern_of, to_markdown
from pattern_studio.capture import bundled
from pattern_studio.metrics import analyze
from tests.metrics.test_predictors import Small

FOLDER = Path(__file__).parents[2] / "gallery" / "claims"
KEPT = sorted(FOLDER.glob("????-??-??.json"))[-1]
# Tables of other kinds: test_predictors.py and benchmarks/test_retrieval.py.
OTHERS = ("-predictors", "-retrieval-")
TABLES = sorted(path for path in FOLDER.glob("*.json") if not any(kind in path.stem for kind in OTHERS))
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
    cells = len(BLOCKS) * len(DENSITIES) * len(values.get("families", FAMILIES))
    assert (len(values["claims"]) == cells) == (not_run(values) == "")
    assert to_markdown(values) == path.with_suffix(".md").read_text("utf-8")


def test_a_cell_of_a_model_has_its_loss_and_a_pattern_fitted_to_another_text():
    small = Small()
    found = claim("fitted", 0.5, (16, 16), small.capture, small)
    assert found.loss_added == pytest.approx(small.loss(pattern_of("fitted", 0.5, (16, 16), small.capture,
                                                                   small.fitted), (16, 16))["added"])  # fmt: skip
    assert 0.4 < found.achieved <= 0.5
    assert 0 < found.recall < 1
    errors = [layer.output_error.rel_l2 for layer in analyze(pattern_of("fitted", 0.5, (16, 16), small.capture,
              small.fitted), small.capture, block=(16, 16)).layers]  # fmt: skip
    assert found.output_error == pytest.approx(np.mean(errors))
    assert found.output_error_interval == pytest.approx(1.96 * np.std(errors, ddof=1) / len(errors) ** 0.5)
    assert "expected a capture to fit to" in claim("fitted", 0.5, (16, 16), bundled()).why_not


def test_a_table_that_was_stopped_says_which_cells_were_not_run():
    every = [row for row in VALUES["claims"] if tuple(row["block"]) != (64, 1)]
    assert not_run(VALUES) == ""
    assert not_run(VALUES | {"claims": every}) == "64 x 1"
    some = [row for row in every if row["density"] != 0.02 and (row["density"], row["family"]) != (0.5, "oracle")]
    left = "128 x 128 at 2%, 50% (oracle); 64 x 64 at 2%, 50% (oracle); 64 x 8 at 2%, 50% (oracle); 64 x 1"
    assert not_run(VALUES | {"claims": some}) == left
    assert to_markdown(VALUES | {"claims": some}).endswith(f"\n\nNot run: {left}.\n")
    assert "Not run: " not in to_markdown(VALUES)


def test_an_output_error_has_its_interval_in_the_table():
    rows = [dict(row, output_error_interval=None if row["why_not"] else 0.0126) for row in VALUES["claims"]]
    told = to_markdown(VALUES | {"claims": rows})
    assert "Output error: relative L2, mean over layers, with 1.96 standard errors over layers. `oracle`" in told
    measured = next(row for row in rows if not row["why_not"])
    assert f"| {measured['output_error']:.3f} ± 0.013 |" in told
