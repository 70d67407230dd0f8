"""The benchmark of long captures, at a small size: its numbers are analyze()'s, its file says where they are from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import pattern_studio as ps
from benchmarks.long_analysis import PATTERNS, made_up, main
from pattern_studio.metrics import analyze


def test_the_file(tmp_path):
    out = tmp_path / "long.json"
    with mock.patch.object(sys, "argv", ["x", "--device", "cpu", "--tokens", "600", "--heads", "2", "--kv-heads", "1",
                                         "--dim", "16", "--out", str(out)]):  # fmt: skip
        main()
    values = json.loads(out.read_text())
    assert (values["tokens"], values["heads"], values["kv_heads"], values["head_dim"]) == (600, 2, 1, 16)
    assert [row["pattern"] for row in values["rows"]] == list(PATTERNS)
    report = analyze(ps.parse(PATTERNS[1]), made_up(600, 2, 1, 16))
    assert values["rows"][1]["recall"] == report.recall.mean
    assert values["rows"][1]["oracle_recall"] == report.oracle_recall
    assert values["block_mass"]["shape"] == [2, 5, 5]
    assert 0 < values["rows"][0]["host_peak_mb"] < 8000
    assert {"kind", "cpu", "torch", "date"} <= set(values["machine"])


def test_the_kept_run_at_32_thousand_tokens_fits_in_two_gigabytes():
    """Measured, beside what test_memory.py expects from shorter ones."""
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    kept = json.loads(sorted(results.glob("*-long-analysis-cpu.json"))[-1].read_text("utf-8"))
    assert (kept["tokens"], kept["heads"], kept["head_dim"]) == (32768, 8, 64)
    assert set(kept["metrics"]) == {"recall", "output_error", "oracle"}
    for row in (kept["block_mass"], *kept["rows"]):
        assert 0 < row["host_peak_mb"] < 2000
    assert kept["machine"]["threads"] <= 2
