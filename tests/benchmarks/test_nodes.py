"""The plan for many nodes: on paper, by simulation, and against the plans that ranks would run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pattern_studio as ps
from attention_core.distributed import distributed_plan, needs, routed
from benchmarks import nodes


@pytest.mark.parametrize(("tokens", "ranks"), [(2**15, 4), (2**15, 16), (2**16, 32)])
def test_paper_and_simulation_count_what_the_plans_send(tokens, ranks):
    rows = [nodes.row(tokens, ranks // 4, 4, way, nodes.Speeds()) for way in nodes.WAYS]
    layout = ps.lower(ps.parse(rows[0]["pattern"]), q_len=tokens, block=128)
    options = {"fetch": {"mode": "fetch"}, "one by one": {"mode": "fetch", "common": False}, "ring": {"mode": "ring"}}
    for one in rows:
        plan = distributed_plan(layout, ranks, 0, kv_heads=nodes.HEADS, way="contiguous", **options[one["mode"]])
        between = plan.bytes_between(nodes.DIM, nodes.DIM, nodes.ITEMSIZE)
        assert one["bytes_sent"] == between.sum()
        node = np.arange(ranks) // 4
        crossing = np.where(node[:, None] == node, 0, between)
        assert one["busiest_between"] == max(crossing.sum(0).max(), crossing.sum(1).max())
    assert rows[1]["bytes_on_paper"] == rows[1]["bytes_sent"]
    assert (
        rows[0]["busiest_inside"] + rows[0]["busiest_between"] <= rows[1]["busiest_inside"] + rows[1]["busiest_between"]
    )


def test_a_ring_of_one_node_leaves_it_nowhere():
    found = needs(ps.lower(ps.causal, q_len=1024, block=128), 4, 1, "contiguous")
    load = nodes.loaded(routed(found, "ring", None), 4)
    assert (load.between, load.total) == (0, 4 * 3 * 256 * nodes.KEY_BYTES)


def test_the_command_writes_rows_with_what_was_assumed(tmp_path, capsys):
    out = tmp_path / "nodes.json"
    nodes.main(["--tokens", "32768", "--nodes", "2", "--between", "25", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert [(row["per_node"], row["mode"]) for row in rows] == [(count, way) for count in (8, 4) for way in nodes.WAYS]
    assert all(row["assumed"] == {"inside": 450.0, "between": 25.0, "tflops": 300.0} for row in rows)
    assert rows[2]["transfer_ms_assumed"] == pytest.approx(rows[2]["busiest_between"] / 25e6)
    assert "ms at assumed speeds: inside 450, between 25, tflops 300" in capsys.readouterr().out
