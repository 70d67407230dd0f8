"""The benchmark of what choosing costs: its rows are made small, and add up."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import selection_time
from pattern_studio.learned import SCORES


def test_every_way_is_timed_beside_the_attention_it_serves(tmp_path, monkeypatch):
    out = tmp_path / "found.json"
    size = ["--tokens", "256", "--heads", "2", "--kv-heads", "1", "--dim", "16", "--density", "0.6", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["selection_time", *size, "--out", str(out)])
    monkeypatch.setattr(selection_time, "BLOCKS", ((32, 32), (32, 8)))
    selection_time.main()
    found = json.loads(out.read_text("utf-8"))
    assert [row["way"] for row in found["rows"]] == [*SCORES, "gate"] * 2
    for row in found["rows"]:
        assert row["share"] == pytest.approx(row["choose_ms"] / row["forward_ms"])
        assert row["share_with_plan"] > row["share"] > 0
        assert row["met"] == (row["share"] < row["aim"])
        on_card = torch.cuda.is_available()
        assert all((row[part] > 0) if on_card else (row[part] is None) for part in ("choose_launches", "plan_launches"))
        assert 0.5 < row["block_density"] <= 0.6
