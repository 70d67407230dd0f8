"""Named patterns timed in Triton's interpreter: rows that the readers find by hash, and failures that stop nothing."""

from __future__ import annotations

import json

import pytest
from pattern_studio_app.timing_file import read

import pattern_studio as ps
from benchmarks.named_patterns import Bench, main, subjects
from gallery.costs import measured, timed_rows
from gallery.matrix import text_of
from gallery.named import FOLDER, gallery, load
from pattern_studio.presets import PRESETS

SMALL = ["--device=cpu", "--lengths=130", "--heads=1", "--repeats=1"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),  # in unused rows: tests of the kernels
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]


def test_a_run_is_read_back_by_hash_and_a_failure_is_a_line(tmp_path, capsys):
    out = tmp_path / "named.json"
    main([*SMALL, "--out", str(out), "--dims=300,16", "--only=mistral"])
    told = capsys.readouterr().out
    assert "mistral                      S130 D300 ours: StudioError: " in told  # the kernels take up to 256 channels
    rows = json.loads(out.read_text())["rows"]
    mistral = load(FOLDER / "mistral.txt")
    own = [row for row in rows if row.get("hash") == mistral.pattern.hash]
    assert [(row["pattern"], row["arm"], row["pass"]) for row in own] == [
        ("mistral", "ours", "forward"),
        ("mistral", "ours", "backward"),
    ]
    assert own[0]["text"] == "causal & window(127, 0)"
    assert {row["pattern"] for row in rows} == {"dense", "causal", "mistral", "mistral, preset"}
    assert all(row["ms"] > 0 and row["card"] is None for row in rows)
    assert measured(mistral, timed_rows(tmp_path)) == []  # a CPU is no card

    out.write_text(json.dumps({"rows": [row | {"card": "A card"} for row in rows]}))
    forward, backward = measured(mistral, timed_rows(tmp_path))
    assert (forward["ms"], backward["ms"]) == tuple(row["ms"] for row in own)
    assert forward["dense_ms"] == next(
        row["ms"] for row in rows if row["pattern"] == "dense" and row["shape"]["D"] == 16
    )
    documents = [row | {"card": "A card", "docs": [130]} for row in own]
    assert {row.hash for row in read(json.dumps({"rows": documents}).encode(), "x").rows} == {""}
    taken = read(out.read_bytes(), "named.json").rows
    assert {row.hash for row in taken if row.pattern == "mistral"} == {mistral.pattern.hash}


def test_nothing_is_begun_when_the_time_is_up(tmp_path, capsys):
    main([*SMALL, "--out", str(tmp_path / "none.json"), "--budget=-1"])
    assert capsys.readouterr().out == "the time is up at a_shape, S130 D128: 0 rows\n"
    assert not (tmp_path / "none.json").exists()


def test_what_the_gallery_shows_is_timed_first(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        Bench, "run", lambda self, one, layout, dim: asked.append((one.name, layout.problem.q_len, dim))
    )
    main(["--device=cpu", "--lengths=256,130", "--dims=32,16", "--only=longformer", "--out", str(tmp_path / "x.json")])
    named = ["deepspeed_longformer", "longformer", "longformer_dilated"]
    presets = ["longformer, preset", "longformer_dilated, preset", "deepspeed_longformer, preset"]
    assert asked == [(name, length, dim) for length in (256, 130) for dim in (32, 16) for name in named + presets]


def test_an_arm_that_fails_leaves_the_others_and_the_file(tmp_path, monkeypatch, capsys):
    from triton.runtime.errors import OutOfResources

    def attend(*tensors, plan, backend):
        raise OutOfResources(300_000, 232_448, "shared memory")

    monkeypatch.setattr("benchmarks.named_patterns.block_sparse_attention", attend)
    out = tmp_path / "named.json"
    main([*SMALL, "--out", str(out), "--dims=16", "--only=mistral"])
    assert capsys.readouterr().out.count("ours: OutOfResources: out of resource: shared memory") == 2
    assert {row["pattern"] for row in json.loads(out.read_text())["rows"]} == {"dense", "causal"}
    assert [path.name for path in tmp_path.iterdir()] == ["named.json"]


def test_every_named_pattern_and_preset_is_there():
    found = {one.name: one for one in subjects(16)}
    assert {one.name for one in gallery()} <= set(found)
    hashes = {one.pattern.hash for one in found.values()}
    assert len(hashes) == len(found)
    assert all(ps.parse(text_of(name)).hash in hashes for name in PRESETS)


def test_documents_fill_the_length_and_grids_end_where_they_are_drawn():
    found = {one.name: one for one in subjects(2)}
    layout = found["packed_documents"].lowered(4096)
    assert sum(layout.problem.docs) == layout.problem.q_len == 4096
    assert found["swin"].lowered(4096).problem.q_len == found["swin"].drawn
    assert found["mistral"].lowered(4096).problem.q_len == 4096
