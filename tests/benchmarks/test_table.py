"""The README's table and picture of the fused core are what the benchmark's results say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.speedup_figure import picture
from benchmarks.table import table

ROOT = Path(__file__).parents[2]


def test_the_table_in_the_readme_is_that_of_its_file():
    text = (ROOT / "README.md").read_text("utf-8")
    rows = json.loads((ROOT / "benchmarks/results/2026-11-29-h200.json").read_text("utf-8"))["rows"]
    assert table(rows) in text


def test_the_picture_in_the_readme_is_that_of_its_file():
    rows = json.loads((ROOT / "benchmarks/results/2026-11-29-h200.json").read_text("utf-8"))["rows"]
    kept = "benchmarks/results/2026-11-29-h200-speedup.svg"
    assert f"({kept})" in (ROOT / "README.md").read_text("utf-8")
    assert picture(rows, 128, 32768) == (ROOT / kept).read_text("utf-8")


def test_a_cell_that_an_arm_did_not_run_is_left_out():
    shape = {"D": 128, "S": 32768, "block": [128, 8]}
    rows = [
        {"shape": shape, "pattern": "p", "arm": arm, "pass": kind, "ms": ms}
        for arm, kind, ms in (("hopper", "forward", 2.0), ("flex", "forward", 3.0), ("flex", "backward", 1.0))
    ]
    rows.append(rows[1] | {"shape": shape | {"block": [64, 64]}})  # not ours: no line
    assert table(rows).splitlines()[2:] == ["| 128 | 32K | p | 2.00 / - | 3.00 / 1.00 | 1.50 / - |"]


def test_ratios_are_cut_and_not_rounded():
    told = {"shape": {"D": 128, "S": 8192, "block": [128, 128]}, "pattern": "p", "pass": "forward"}
    text = table([told | {"arm": "hopper", "ms": 2.0}, told | {"arm": "fa4", "ms": 1.999}])
    assert text.splitlines()[2] == "| 128 | 8K | p | 2.00 / - | 2.00 / - | 0.99 / - |"
