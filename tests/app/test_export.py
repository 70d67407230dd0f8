"""The Export page as Streamlit runs it: every target's fidelity, the doctor's advice and its button, the matrix."""

from __future__ import annotations

import re

import pytest
from pattern_studio_app import exporting
from pattern_studio_app.events import TargetChosen, TensorsSet
from pattern_studio_app.pages.export import short
from pattern_studio_app.work import Work

import gallery.matrix
import pattern_studio as ps
from pattern_studio.exporters import TARGETS, check, doctor
from tests.app.drive import html, labelled
from tests.app.test_pages import started, text_box

TEXT = "causal & chunk(64)"


def page(target: str = "flex_attention", **params: str):
    """The page with a target chosen; `params` as in a link."""
    at = started("export", **params)
    at.session_state["studio session"].happened(TargetChosen(target))
    at.run()
    assert not at.exception
    return at


def work(at) -> Work:
    return at.session_state["studio session"].state.shown


def test_every_target_says_how_faithful_it_is():
    at = page(p=TEXT, q="256", h="2", bq="48", bk="48")
    problem = ps.Problem(256, heads=2)
    pairs = ps.lower(ps.parse(TEXT), problem, block=48).pairs
    captions = list(labelled(at.radio, "Target").proto.captions)
    assert captions == [short(check(ps.parse(TEXT), problem, 48, name), pairs) for name in TARGETS]
    assert {"exact", "no"} < set(captions)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_tested_where_is_said(target):
    at = page(target, p="causal", q="64", h="1")
    assert f'data-proof="{TARGETS[target].proof}"' in html(at)


def test_the_doctors_change_is_made_by_its_button_and_undone():
    at = page("deepspeed", p="chunk(64)", q="192", h="2", bq="48", bk="48")
    found = doctor(ps.chunk(64), ps.Problem(192, heads=2), 48, "deepspeed", head_dim=64, kv_heads=2)
    assert found.findings[0].why in html(at)
    assert "lower it at block 64 x 64" in html(at)
    at.button(key="mend").click().run()
    assert work(at).block == (64, 64)
    assert "Fits as it is." in html(at)
    at.button(key="undo").click().run()
    assert work(at).block == (48, 48)
    assert "Fits as it is." not in html(at)


def test_a_pattern_for_each_head_opens_part_by_part():
    text = "heads({range(0, 2): causal & window(63, 0), 2: chunk(64)})"
    at = page("flashinfer_bsr", p=text, q="128", h="3")
    assert [b.label for b in at.button if str(b.key).startswith("mend")] == [
        "Open the part of heads 0 to 1",
        "Open the part of head 2",
    ]
    at.button(key="mend 1").click().run()
    assert (text_box(at).value, work(at).heads) == ("chunk(64)", 1)
    assert "Fits as it is." in html(at)


def test_tensors_are_looked_at():
    at = page("block_sparse_attention", p="dense", q="256", h="4", bq="128", bk="128")
    assert "Fits as it is." in html(at)
    labelled(at.number_input, "Head dimension").set_value(80).run()
    assert "it takes head dimensions 32 or 64 or 128, got 80" in html(at)
    assert not [b for b in at.button if b.key == "mend"], "padding tensors is no change of the text or the problem"
    labelled(at.number_input, "Head dimension").set_value(64).run()
    labelled(at.number_input, "KV heads").set_value(3).run()
    assert "expected kv_heads that divide the 4 query heads, got 3" in html(at)
    assert not at.exception


def test_other_targets_that_hold_it_are_one_click_away():
    at = page("minference", p="bigbird(block=16)", q="128", h="1", bq="16", bk="16")
    assert "No change was found that makes it fit." in html(at)
    at.button(key="elsewhere deepspeed").click().run()
    assert labelled(at.radio, "Target").value == "deepspeed"
    assert "Fits as it is." in html(at)


def test_long_problems_are_tried_one_by_one():
    at = page("json", p="causal & window(255, 0)", q="65536", h="1", bq="128", bk="128")
    assert "so they are tried one by one" in html(at)
    assert not labelled(at.radio, "Target").proto.captions
    assert len(at.get("download_button")) == 1
    assert "Fits as it is." not in html(at)
    labelled(at.toggle, "Look at it, which may take minutes").set_value(True).run()
    assert "Fits as it is." in html(at)


def test_a_problem_that_does_not_fit_is_said():
    at = page(p="causal & docs")
    assert "docs needs the document lengths" in html(at)


def test_the_matrix_is_the_gallerys_and_can_be_filtered():
    known, kept = exporting.matrix(), gallery.matrix.kept()
    assert list(known["presets"]) == list(kept)
    for name, preset in known["presets"].items():
        assert preset["text"] == gallery.matrix.text_of(name)
        assert list(preset["cells"]) == gallery.matrix.targets()
        for to, cell in preset["cells"].items():
            assert kept[name][to].split()[0].rstrip(":") == {"unsupported": "no"}.get(cell["kind"], cell["kind"])
            assert cell["kind"] != "unsupported" or kept[name][to] == f"no: {cell['reason']}"
    at = page()
    rows = len(known["presets"])
    assert len(re.findall(r'<th scope="row"', html(at))) == rows
    labelled(at.multiselect, "Targets").set_value(["natten", "xformers"]).run()
    labelled(at.selectbox, "All of them hold it").set_value("exact").run()
    assert re.findall(r'<th scope="row" title="([^"]*)"', html(at)) == ["mistral(256)", "gemma(layers=26, window=256)"]
    labelled(at.text_input, "Preset").set_value("bigbird").run()
    assert "No preset is like that" in html(at)
    assert not at.exception


def test_a_case_that_no_form_can_say_has_no_button():
    found = doctor(ps.causal & ps.window(7, 0), ps.Problem(8, 64), 8, "natten")
    (case,) = found.cases
    assert exporting.work_of(case, Work(text="causal & window(7, 0)", q_len=8, kv_len=64, heads=1)) == Work(
        text="causal & window(7, 0)", q_len=64, heads=1, block_q=8, block_k=8
    )
    moved = ps.Problem(8, 64, q_offset=3)
    fits = doctor(ps.causal, moved, 8, "json").cases[0]
    assert exporting.work_of(fits, Work(text="causal", q_len=8, kv_len=64)) is None


def test_tensors_stay_within_the_heads():
    at = page(h="4")
    session = at.session_state["studio session"]
    session.happened(TensorsSet("kv_heads", 3))
    assert exporting.kv_heads(session.state) == 3
    labelled(at.run().number_input, "KV heads")
    at = page(h="2")
    session = at.session_state["studio session"]
    session.happened(TensorsSet("kv_heads", 3))
    assert exporting.kv_heads(session.state) == 2
