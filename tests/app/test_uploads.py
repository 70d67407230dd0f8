"""Uploads: what is read is what was saved, and hostile files cost one sentence and nothing else."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_studio_app import captures, numbers, theme, uploads
from pattern_studio_app.reading import MAX_TEXT
from pattern_studio_app.uploads import MAX_BYTES, read_capture, read_pattern
from pattern_studio_app.work import Work
from streamlit.testing.v1 import AppTest

import pattern_studio as ps
from pattern_studio import StudioError
from pattern_studio.capture import LayerMinds, Minds
from pattern_studio.exporters import export
from pattern_studio.learned import tile_importance
from pattern_studio.metrics import analyze

from . import hostile
from .test_pages import html, labelled
from .toy import TOKENS, npy, saved, toy

RAN = Path(tempfile.gettempdir()) / f"pattern-studio-ran-{os.getpid()}"
PRESET = "causal & (window(255, 0) | sink(4))"


@pytest.fixture(autouse=True)
def _nothing_runs_or_is_written(nothing_left):
    yield
    assert not RAN.exists()


class TestCaptures:
    @pytest.mark.parametrize("name", ["mine.safetensors", "mine.npz"])
    def test_a_capture_is_what_was_saved(self, tmp_path, name):
        source = read_capture(name, saved(toy(), tmp_path / name))
        assert source.title == "toy 0, CC0, 96 tokens, layers 3 and 5"
        pattern = ps.parse("causal & window(9, 0)")
        one, other = (analyze(pattern, c, block=16, metrics=("recall",)) for c in (source.load(), toy()))
        assert one.recall.mean == other.recall.mean

    @pytest.mark.parametrize("name", hostile.captures(RAN))
    def test_a_hostile_file_is_one_sentence(self, name):
        data, words = hostile.captures(RAN)[name]
        with pytest.raises(StudioError) as caught:
            read_capture(name, data)
        text = str(caught.value)
        assert text.startswith(f"{name}: ")
        assert words in text
        assert "\n" not in text
        assert len(text) <= 600

    def test_gradients_that_are_let_in_give_each_tile_a_number(self):
        values = max(float(layer.v.abs().max()) for layer in toy().layers.values())
        most = (uploads.LARGEST**0.5 / 96) ** 0.5 / (2 * values * 8)
        source = read_capture("mine.safetensors", hostile.changed(**hostile.gradients(0.99 * most)))
        assert source.gradients
        capture = source.load()
        assert tile_importance(capture, capture.gradients, 3, (16, 8)).isfinite().all()
        with pytest.raises(StudioError, match="with which a token's loss can change by"):
            read_capture("mine.safetensors", hostile.changed(**hostile.gradients(1.01 * most)))

    def test_what_is_minded_and_let_in_gives_a_number(self):
        values = max(float(layer.v.abs().max()) for layer in toy().layers.values())
        most = uploads.LARGEST**0.5 / (2 * values * 32 * (32 * 96) ** 0.5)
        with pytest.raises(StudioError, match="expected projections and streams whose shares float32 can hold"):
            read_capture("mine.safetensors", hostile.changed(**hostile.minds(1.01 * most)))
        for sizes in ({"projection": 0.99 * most}, {"rows": 3e38}, {"rows": 1e-45}, {"stream": 3e38}):
            capture = read_capture("mine.safetensors", hostile.changed(**hostile.minds(**sizes))).load()
            found = analyze(ps.sink(1), capture, metrics=["minded_damage"], sensitivity=[1, 1])
            assert math.isfinite(found.minded_damage)

    def test_too_large_a_file(self, monkeypatch):
        monkeypatch.setattr(uploads, "MAX_BYTES", 100)
        with pytest.raises(StudioError, match=r"at most 100 bytes, got 200; use the command line for larger captures"):
            read_capture("a.npz", bytes(200))

    @pytest.mark.parametrize(
        ("name", "told"),
        [("../../etc/passwd", "passwd"), ("C:\\secret\\a.npz", "a.npz"), ("a\nb\0.npz", "a?b?.npz"), ("", "the file")],
    )
    def test_names_are_only_said(self, name, told):
        with pytest.raises(StudioError) as caught:
            read_capture(name, b"")
        assert str(caught.value).startswith(f"{told}: ")

    @settings(max_examples=25)
    @given(st.binary(max_size=400))
    def test_any_bytes_are_a_capture_or_an_error(self, data):
        for begin in (b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x20" + bytes(7) + b"{"):
            with pytest.raises(StudioError):
                read_capture("a", begin + data)

    def test_only_the_newest_are_kept(self, tmp_path):
        store = captures.Store()
        sources = [read_capture("a.npz", saved(toy(seed), tmp_path / "a.npz")) for seed in range(4)]
        for source in (*sources, sources[1]):
            store.add(source)
        assert [source.key for source in store.sources.values()] == [sources[n].key for n in (2, 3, 1)]


class TestPatterns:
    @pytest.mark.parametrize("target", ["json", "npz", "safetensors"])
    def test_an_exported_pattern_brings_its_problem(self, target):
        pattern, problem = ps.parse("causal & docs & window(50, 0)"), ps.Problem(300, 300, heads=3, docs=(100, 200))
        file = export(pattern, problem, (32, 8), to=target)
        found = read_pattern(f"a.{target}", file.data, Work(beside=("dense",)))
        assert found == Work(str(pattern), 300, None, 3, 32, 8, "100, 200", 0, ("dense",))

    def test_a_token_mask(self):
        mask = ps.dense_mask(ps.parse("causal & (window(15, 0) | sink(2))"), ps.Problem(40, 64))[0]
        found = read_pattern("a.npy", npy(mask), Work(block_q=32, block_k=16))
        assert found == Work("causal & (window(15, 0) | sink(2))", 40, 64, 1, 32, 16)

    def test_a_tile_mask_is_for_the_problem_that_is_shown(self):
        found = read_pattern("a.npy", npy(np.eye(4, dtype=bool)), Work(q_len=200, heads=1), tiles=True)
        assert found == Work("chunk(64)", 200, None, 1)
        with pytest.raises(StudioError, match=r"expected 16 x 16 tiles of 64 x 64 for 1,024 x 1,024 tokens, got 4 x 4"):
            read_pattern("a.npy", npy(np.eye(4, dtype=bool)), Work(), tiles=True)

    @pytest.mark.parametrize("name", hostile.patterns(RAN))
    def test_a_hostile_file_is_one_sentence(self, name):
        data, words = hostile.patterns(RAN)[name]
        with pytest.raises(StudioError) as caught:
            read_pattern(name, data, Work())
        text = str(caught.value)
        assert text.startswith(f"{name}: ")
        assert words in text
        assert "\n" not in text

    @pytest.mark.parametrize("target", ["npz", "safetensors"])
    def test_a_file_whose_arrays_were_changed(self, target):
        data = bytearray(export(ps.parse("causal & window(50, 0)"), ps.Problem(300), 32, to=target).data)
        data[-1 if target == "safetensors" else data.index(b"start.npy") + 150] ^= 1
        with pytest.raises(StudioError, match="damaged"):
            read_pattern("a", bytes(data), Work())

    @pytest.mark.parametrize(
        ("problem", "block", "error"),
        [
            (ps.Problem(2_000_000), 128, "expected 1 to 1,048,576 query rows, got 2,000,000"),
            (ps.Problem(100, heads=500), 64, "expected 1 to 256 heads, got 500"),
            (ps.Problem(100), 2048, "expected 1 to 1,024 rows of a block, got 2,048"),
            (ps.Problem(100, 200, 0), 64, "at the end of the keys, q_offset 100, got 0"),
        ],
    )
    def test_a_problem_that_design_can_not_show(self, problem, block, error):
        with pytest.raises(StudioError, match=error):
            read_pattern("a.json", export(ps.causal, problem, block, to="json").data, Work())

    def test_a_pattern_that_is_too_long_to_be_shown(self):
        mask = np.random.default_rng(0).random((80, 80)) < 0.5
        pattern = ps.blocks.from_mask(np.kron(mask, np.ones((4, 4), bool)), (4, 4))
        file = export(pattern, ps.Problem(2048), 64, to="json")
        assert len(str(pattern)) > MAX_TEXT
        with pytest.raises(StudioError, match=r"a pattern of at most 50,000 characters, got [\d,]+; read it in Python"):
            read_pattern("a.json", file.data, Work())

    def test_too_large_a_json(self):
        with pytest.raises(StudioError, match=r"a \.json pattern of at most 2,097,152 bytes, got 3,000,000"):
            read_pattern("a.json", b"{" + b" " * 2_999_999, Work())

    @settings(max_examples=25)
    @given(st.binary(max_size=400))
    def test_any_bytes_are_a_pattern_or_an_error(self, data):
        for begin in (b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"{", b"[", b"\x20" + bytes(7) + b"{"):
            with pytest.raises(StudioError):
                read_pattern("a", begin + data, Work())


def one_page() -> None:
    import streamlit as st
    from pattern_studio_app.pages import compare, design, fit, quality

    {"quality": quality, "design": design, "compare": compare, "fit": fit}[st.session_state["page"]].render()


def started(page: str) -> AppTest:
    at = AppTest.from_function(one_page, default_timeout=120)
    at.session_state["page"] = page
    at.query_params["p"] = "causal & window(9, 0)"
    at.query_params["bq"] = at.query_params["bk"] = "16"
    return turned(at)


def turned(at: AppTest, page: str | None = None) -> AppTest:
    if page:
        at.session_state["page"] = page
    at.run()
    assert not at.exception
    return at


def given_file(at: AppTest, name: str, data: bytes) -> AppTest:
    at.file_uploader[0].set_value((name, data, "application/octet-stream")).run()
    assert not at.exception
    return at


class TestPages:
    def test_an_uploaded_capture_is_measured_with_its_worst_rows_and_words(self, tmp_path):
        at = given_file(started("quality"), "toy.npz", saved(toy(), tmp_path / "toy.npz"))
        report = analyze(ps.parse("causal & window(9, 0)"), toy(), block=16, metrics=("recall",))
        worst = report.layers[0].heads[0].figures["worst_rows"][0]
        assert f"<mark> word{worst.row}</mark>" in html(at)
        assert "toy 0, CC0, 96 tokens, layers 3 and 5" in html(at)
        assert "Layer 3, head 0" in html(at)
        labelled(at.selectbox, "layer").set_value(5).run()
        assert "Layer 5, head 0" in html(at)
        turned(at, "design")
        assert "toy 0, CC0, 96 tokens, layers 3 and 5" in html(at)
        turned(at, "quality")
        labelled(at.selectbox, "Measured on").select_index(0).run()
        assert "SmolLM2-135M" in html(at)

    @pytest.mark.parametrize("weights", [None, (1, 3)])
    def test_what_the_model_minds_weighs_the_damage_that_is_shown(self, weights, tmp_path):
        minds = {n: LayerMinds(torch.ones(4, 96), torch.eye(32), torch.full((96,), 2.0)) for n in (3, 5)}
        capture = replace(toy(), minds=Minds(minds), sensitivity=weights)
        at = given_file(started("quality"), "toy.npz", saved(capture, tmp_path / "toy.npz"))
        # As the page has it: the layer that is shown.
        report = analyze(ps.parse("causal & window(9, 0)"), capture, block=16, metrics=("minded_damage", "damage"))
        name = "damage" if weights is None else "minded_damage"
        (shown,) = {one.value for one in at.metric if one.label == "Damage"}
        assert shown in {
            numbers.fraction(one.figures[name]) for one in (report, *report.layers, *report.layers[0].heads)
        }
        assert f"{name.replace('_', ' ').capitalize()}: lost mass" in at.metric[0].help

    def test_layers_with_other_numbers_of_heads_and_all_keys_seen(self, tmp_path):
        capture = toy(causal=False)
        halves = {5: type(capture.layers[5])(*(part[:2] for part in capture.layers[5].named().values()))}
        mixed = type(capture)({3: capture.layers[3], **halves}, "mixed", "CC0", capture.tokens, 0.35, False)
        at = given_file(started("quality"), "a.npz", saved(mixed, tmp_path / "a.npz"))
        assert "mixed, 96 tokens" in html(at)
        labelled(at.selectbox, "layer").set_value(5).run()
        assert labelled(at.selectbox, "head").options == ["head 0", "head 1"]

    def test_a_pattern_for_other_lengths_says_so_and_stays(self, tmp_path):
        at = started("quality")
        labelled(at.text_input, "Pattern").set_value("causal & docs").run()
        at.session_state["page"] = "design"
        at.run()
        labelled(at.text_input, "Documents, tokens").set_value("1000, 24").run()
        turned(at, "quality")
        given_file(at, "toy.npz", saved(toy(), tmp_path / "toy.npz"))
        assert "Not measured on this capture: " in html(at)
        assert "96" in html(at)
        assert labelled(at.text_input, "Pattern").value == "causal & docs"

    def test_compare_measures_on_it_too(self, tmp_path):
        at = given_file(started("quality"), "toy.npz", saved(toy(), tmp_path / "toy.npz"))
        turned(at, "compare")
        at.button(key="start 2").click().run()
        assert not at.exception
        assert "toy 0, CC0, 96 tokens, layers 3 and 5" in html(at)
        assert "SmolLM2" not in html(at)

    def test_hostile_captures_leave_everything_as_it_is(self):
        at = started("quality")
        for name in ("model.pt", "bomb.npz", "nan.safetensors"):
            data, words = hostile.captures(RAN)[name]
            given_file(at, name, data)
            assert html(at).count('role="alert"') == 1
            assert words in html(at)
            assert labelled(at.text_input, "Pattern").value == "causal & window(9, 0)"
            assert labelled(at.selectbox, "Measured on").options == [captures.BUNDLED.title]

    def test_a_name_is_shown_as_text(self):
        at = given_file(started("quality"), "<img src=x onerror=alert(1)>.npz", b"")
        assert "&lt;img src=x" in html(at)

    def test_no_other_visitor_sees_a_capture(self, tmp_path):
        one, two = started("quality"), started("quality")
        given_file(one, "toy.npz", saved(toy(), tmp_path / "toy.npz"))
        turned(two)
        assert labelled(two.selectbox, "Measured on").options == [captures.BUNDLED.title]

    def test_a_pattern_file_opens_and_is_undone(self):
        at = started("design")
        file = export(ps.parse("causal & chunk(32)"), ps.Problem(500, heads=2), (32, 32), to="npz")
        given_file(at, "a.npz", file.data)
        assert labelled(at.text_input, "Pattern").value == "causal & chunk(32)"
        assert labelled(at.number_input, "Query rows, tokens").value == 500
        at.button(key="undo").click().run()
        assert labelled(at.text_input, "Pattern").value == "causal & window(9, 0)"
        assert labelled(at.number_input, "Query rows, tokens").value == 1024

    def test_hostile_patterns_leave_everything_as_it_is(self):
        at = started("design")
        for name in ("model.pt", "bomb.npz", "noise.npy"):
            data, words = hostile.patterns(RAN)[name]
            given_file(at, name, data)
            assert words in html(at)
            assert labelled(at.text_input, "Pattern").value == "causal & window(9, 0)"
        labelled(at.radio, "A mask has a cell for each").set_value("tile").run()
        given_file(at, "tiles.npy", npy(np.tri(64, dtype=bool)))
        assert labelled(at.text_input, "Pattern").value == "(causal | chunk(16))"[1:-1]
        assert "save a cell" not in html(at)


def test_streamlit_refuses_more_than_we_read():
    assert MAX_BYTES == 64 << 20
    assert theme.OPTIONS["server.maxUploadSize"] == 64
    assert len(toy().tokens) == TOKENS
