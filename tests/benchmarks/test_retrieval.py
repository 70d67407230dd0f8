"""The kept retrieval probe: a row of it on a small model, and the table made from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pattern_studio as ps
from benchmarks.retrieval import DEPTHS, probed, to_markdown
from pattern_studio.metrics.retrieval import copy_probe
from tests.capture.families import build

KEPT = sorted((Path(__file__).parents[2] / "gallery" / "claims").glob("*-retrieval-*.json"))


def test_a_probe_has_its_density_and_the_rows_of_copy_probe():
    model, ids = build("llama"), tuple(range(3, 67))
    found = probed(model, ids, "heads({0:3: causal, 3:6: causal & window(0, 0)})", depths=(0, 1), needle=8, draws=1)
    assert found["token_density_of_causal"] == pytest.approx((3 * 64 * 65 / 2 + 3 * 64) / (6 * 64 * 65 / 2))
    own = copy_probe(model, ids, ps.parse(found["pattern"]), depths=(0, 1), needle=8, draws=1, block=64)
    assert found["rows"] == own.as_dict()["rows"]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_table_is_made_from_its_file(path):
    values = json.loads(path.read_text("utf-8"))
    assert to_markdown(values) == path.with_suffix(".md").read_text("utf-8")
    for one in values["probes"]:
        assert [row["depth"] for row in one["rows"]] == list(DEPTHS)
        layout = ps.lower(ps.parse(one["pattern"]), ps.Problem(values["tokens"], heads=9), block=64)
        assert one["token_density_of_causal"] == layout.pairs / (9 * values["tokens"] * (values["tokens"] + 1) // 2)


def test_something_is_kept():
    assert KEPT
