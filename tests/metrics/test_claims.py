"""The claims table: cells computed anew equal those that are kept, and its words follow its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.claims import BLOCKS, DENSITIES, FAMILIES, claim, to_markdown
from pattern_studio.capture import bundled

FOLDER = Path(__file__).parents[2] / "gallery" / "claims"
KEPT = sorted(FOLDER.glob("*.json"))[-1]
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


def test_every_cell_is_there_and_the_table_is_made_from_them():
    assert len(VALUES["claims"]) == len(BLOCKS) * len(DENSITIES) * len(FAMILIES)
    assert to_markdown(VALUES) == KEPT.with_suffix(".md").read_text("utf-8")
