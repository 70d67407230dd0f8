"""The palette: every entry can be read and lowered, joins the text as its operator says, and stands behind a button."""

from __future__ import annotations

import pytest
from pattern_studio_app.events import Inserted, OperatorChosen, Redo, Typed, Undo
from pattern_studio_app.palette import entries
from pattern_studio_app.presets import PRESETS
from pattern_studio_app.state import State, reduce
from pattern_studio_app.words import layer_cases

import pattern_studio as ps
from tests.app.drive import html, labelled
from tests.app.test_pages import started, text_box


def after(*events) -> State:
    state = State()
    for event in events:
        state = reduce(state, event)
    return state


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.title[:30])
def test_every_entry_is_a_pattern_of_its_problem(entry):
    heads = entry.preset.heads if entry.preset else 9
    layout = ps.lower(ps.parse(entry.text), q_len=1024, heads=heads, block=64, layer=0, docs=(1024,))
    assert layout.tile_pairs > 0 or entry.title == "empty"
    assert entry.about


def test_every_word_and_every_preset_is_there():
    titles = [entry.title for entry in entries()]
    assert set(ps.vocabulary()) - set(ps.presets.PRESETS) <= set(titles)
    assert {preset.title for preset in PRESETS} <= set(titles)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("|", "causal | chunk(8) | sink(4)"),
        ("&", "(causal | chunk(8)) & sink(4)"),
        ("&~", "(causal | chunk(8)) & ~sink(4)"),
        ("", "sink(4)"),
    ],
)
def test_a_word_joins_the_pattern_and_can_be_undone(operator, expected):
    state = after(Typed("causal | chunk(8)"), Inserted("sink(4)", operator))
    assert state.work.text == state.shown.text == expected
    assert reduce(state, Undo()).work.text == "causal | chunk(8)"
    assert reduce(reduce(state, Undo()), Redo()).work.text == expected


def test_the_operator_is_remembered():
    assert after(OperatorChosen("&")).operator == "&"


def test_nothing_is_made_before_the_palette_is_opened():
    at = started()
    assert not [button for button in at.button if button.key and button.key.startswith("pick")]
    at.session_state["palette"] = True
    at.run()
    assert not at.exception
    (strided,) = [button for button in at.button if button.label == "strided"]
    strided.click().run()
    assert text_box(at).value == "causal & (window(255, 0) | sink(4)) | strided(64)"


def test_kinds_of_layers_are_thumbnails_that_open():
    text = "layers({range(0, 4): window(63, 0), 4: causal})"
    assert layer_cases(ps.parse(text)) == [range(0, 4), range(4, 5)]
    at = started(p=text)
    assert 'alt="Pattern of layer 0 to 3"' in html(at)
    at.button(key="open layer 4").click().run()
    assert labelled(at.number_input, "Layer").value == 4
    assert "Layers" not in html(started(p="causal"))
