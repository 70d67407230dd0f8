"""The benchmark of what choosing costs: its rows are made small, and add up."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import selection_time
from pattern_studio.learned import SCORES


def run(out, monkeypatch):
    size = ["--tokens", "256", "--heads", "2", "--kv-heads", "1", "--dim", "16", "--density", "0.6", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["selection_time", *size, "--out", str(out)])
    monkeypatch.setattr(selection_time, "BLOCKS", ((32, 32), (32, 8)))
    selection_time.main()
    return json.loads(out.read_text("utf-8"))


def test_every_way_is_timed_beside_the_attention_it_serves(tmp_path, monkeypatch):
    found = run(tmp_path / "found.json", monkeypatch)
    assert found["failed"] == []
    assert [row["way"] for row in found["rows"]] == [*SCORES, "gate"] * 2
    for row in found["rows"]:
        assert row["share"] == pytest.approx(row["choose_ms"] / row["forward_ms"])
        assert row["share_with_plan"] > row["share"] > 0
        assert row["met"] == (row["share"] < row["aim"])
        on_card = found["machine"]["kind"] == "GPU"
        for part in ("choose", "plan", "forward"):
            assert all((row[f"{part}_{of}"] is not None) == on_card for of in ("launches", "busy_ms"))
        assert 0.5 < row["block_density"] <= 0.6


def test_the_others_go_on_after_a_way_that_fails_and_then_the_run_has_failed(tmp_path, monkeypatch):
    def broken(q, k, tiling):
        raise RuntimeError("no such program")

    monkeypatch.setitem(selection_time.SCORES, "pooled", broken)
    out = tmp_path / "found.json"
    with pytest.raises(SystemExit, match=r"failed: pooled at \[32, 32\], pooled at \[32, 8\]"):
        run(out, monkeypatch)
    found = json.loads(out.read_text("utf-8"))
    assert [(row["way"], row["error"]) for row in found["failed"]] == [("pooled", "RuntimeError: no such program")] * 2
    assert [row["way"] for row in found["rows"]] == [name for name in (*SCORES, "gate") if name != "pooled"] * 2
