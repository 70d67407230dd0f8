"""reduce(state, event): every event, undo and redo, and what a broken text leaves alone."""

from __future__ import annotations

import pytest
from pattern_studio_app.events import (
    Boxed,
    Compared,
    FamilyChosen,
    FieldSet,
    HeadChosen,
    Looked,
    Opened,
    ProblemSet,
    Redo,
    TargetChosen,
    ToolChosen,
    Typed,
    Undo,
    Zoomed,
    ZoomedOut,
)
from pattern_studio_app.families import FAMILIES, family_of
from pattern_studio_app.state import KEPT, State, reduce
from pattern_studio_app.work import PRESET, Work, document_lengths

import pattern_studio as ps
from pattern_studio import StudioError
from pattern_studio.plot import Viewport


def after(*events, state: State = State()) -> State:
    for event in events:
        state = reduce(state, event)
    return state


def test_it_opens_on_a_preset_that_can_be_read():
    assert str(State().pattern) == PRESET
    assert not State().can_undo


def test_typing_a_pattern_shows_it_as_it_was_typed():
    state = after(Typed("causal&sink(4)"))
    assert state.work.text == state.shown.text == "causal&sink(4)"
    assert state.pattern == ps.parse("causal & sink(4)")


def test_a_broken_text_is_kept_in_the_box_and_the_last_good_one_is_shown():
    state = after(Typed("causal & sink(4)"), Typed("causal & sink("))
    assert state.work.text == "causal & sink("
    assert state.shown.text == "causal & sink(4)"
    assert state.work.reading.column is not None


def test_undo_first_drops_a_broken_text_then_goes_back():
    state = after(Typed("causal"), Typed("causal &"))
    state = reduce(state, Undo())
    assert state.work.text == "causal"
    state = reduce(state, Undo())
    assert state.work.text == PRESET
    assert reduce(state, Undo()) == state


def test_redo_goes_forward_until_something_else_is_done():
    state = after(Typed("causal"), Typed("dense"), Undo(), Undo())
    assert after(Redo(), Redo(), state=state).work.text == "dense"
    assert after(Redo(), Typed("empty"), Redo(), state=state).work.text == "empty"
    assert after(Redo(), Typed("empty"), Undo(), state=state).work.text == "causal"


def test_undo_brings_the_problem_back_too():
    state = after(ProblemSet("q_len", 4096), ProblemSet("block_k", 16), Undo())
    assert (state.work.q_len, state.work.block) == (4096, (64, 64))


def test_dragging_one_field_is_one_step_of_undo():
    state = after(FieldSet("left", 10), FieldSet("left", 20), FieldSet("left", 30))
    assert state.work.text == "causal & (window(30, 0) | sink(4))"
    assert reduce(state, Undo()).work.text == PRESET
    state = after(FieldSet("left", 10), FieldSet("sink", 8), FieldSet("left", 30), Undo())
    assert state.work.text == "causal & (window(10, 0) | sink(8))"


def test_history_is_bounded():
    state = after(*(Typed(f"sink({n})") for n in range(3 * KEPT)))
    assert len(state.past) == KEPT


def test_a_field_edits_the_text_and_the_text_is_read_back_by_the_form():
    state = after(FieldSet("left", 63), FieldSet("sink", 0))
    assert state.work.text == "causal & window(63, 0)"
    family, values = family_of(after(Typed("causal & (sink(9) | window(31, 0))")).pattern)
    assert (family.name, values) == ("sink_window", {"causal": 1, "left": 31, "right": 0, "sink": 9})


def test_causal_is_a_field_like_others():
    assert after(FieldSet("causal", 0)).work.text == "window(255, 0) | sink(4)"


def test_a_field_of_a_form_that_has_gone_changes_nothing():
    state = after(Typed("causal & docs"))
    assert after(FieldSet("left", 3), FieldSet("nonsense", 3), state=state).work.text == "causal & docs"


def test_choosing_a_family_keeps_the_numbers_that_both_have():
    state = after(FieldSet("left", 77), FamilyChosen("strided"))
    assert state.work.text == "causal & (window(77, 0) | strided(128))"
    assert after(Typed("causal & docs"), FamilyChosen("chunk")).work.text == "causal & chunk(256)"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_reads_what_it_makes(name):
    state = after(FamilyChosen(name))
    family, values = family_of(state.pattern)
    kept = {"left": 255, "sink": 4}  # the preset's own numbers, where the family has them
    assert (family.name, values) == (name, family.defaults | {k: n for k, n in kept.items() if k in values})
    for field in family.fields:
        if field.pointless:
            continue
        changed = reduce(state, FieldSet(field.name, field.default + 5))
        assert family_of(changed.pattern)[1][field.name] == field.default + 5, field.name
    assert family_of(reduce(state, FieldSet("causal", 0)).pattern)[0].name == name


@pytest.mark.parametrize(
    "text",
    [
        "causal & docs",
        "causal & (window(3, 0) | sink(4)) | rect(0:4, 0:8)",
        "window(3, 5) | globals(rows=0:4)",
        "causal & (window(3, 0) | random(2, unit=block))",
        "causal & causal & window(3, 0)",
        "~window(3, 0)",
        "causal & (sink(1) | sink(2))",
        "heads({0: causal, 1: dense})",
    ],
)
def test_what_no_form_can_make_is_free_form(text):
    assert family_of(ps.parse(text)) is None


def test_keys_follow_queries_until_they_are_set_apart():
    state = after(ProblemSet("q_len", 512))
    assert state.shown.problem().kv_len == 512
    state = after(ProblemSet("kv_len", 2048), ProblemSet("q_len", 1), state=state)
    assert (state.shown.problem().kv_len, state.shown.problem().offset) == (2048, 2047)
    state = after(ProblemSet("q_len", 2048), ProblemSet("q_len", 256), state=state)
    assert state.shown.problem().kv_len == 256


def test_the_problem_can_change_while_a_text_is_half_typed():
    state = after(Typed("causal & win"), ProblemSet("q_len", 256))
    assert state.work.text == "causal & win"
    assert (state.shown.text, state.shown.q_len, state.work.q_len) == (PRESET, 256, 256)


def test_a_box_zooms_adds_or_removes():
    box = Viewport(128, 256, 0, 64)
    assert after(Boxed(box)).viewport == box
    assert after(Boxed(box), ZoomedOut()).viewport is None
    assert after(Boxed(box), ProblemSet("q_len", 64)).viewport is None
    added = after(Typed("causal"), ToolChosen("add"), Boxed(box))
    assert added.work.text == "causal | rect(range(128, 256), range(0, 64))"
    removed = after(Typed("causal"), ToolChosen("remove"), Boxed(box))
    assert removed.work.text == "causal & ~rect(range(128, 256), range(0, 64))"
    assert reduce(added, Undo()).work.text == "causal"
    late = after(Typed("causal"), ToolChosen("zoom"), Boxed(box, "add"))  # begun before another tool was chosen
    assert (late.work, late.tool) == (added.work, "zoom")
    twice = after(Boxed(Viewport(0, 64, 64, 128)), state=added)
    assert reduce(twice, Undo()) != reduce(added, Undo())  # each box is a step of its own


def test_boxes_are_query_rows_and_rectangles_are_positions():
    state = after(Typed("causal"), ProblemSet("kv_len", 1124), ToolChosen("add"), Boxed(Viewport(0, 64, 0, 64)))
    assert state.work.text == "causal | rect(range(100, 164), range(0, 64))"


def test_the_head_in_view_stays_one_that_is_there():
    state = after(HeadChosen(7), ProblemSet("heads", 4))
    assert state.head == 3
    assert after(HeadChosen(7), ProblemSet("heads", 4), Undo()).work.heads == 9


def test_a_box_can_ask_about_the_pair_in_its_middle():
    state = after(ToolChosen("why"), Boxed(Viewport(300, 301, 64, 128)))
    assert (state.asked, state.shown, state.viewport) == ((300, 96), Work(), None)
    assert after(Typed("causal"), state=state).asked == (300, 96)
    assert after(ProblemSet("q_len", 64), state=state).asked is None
    assert after(Opened(Work(q_len=8)), state=state).asked is None
    longer = after(ProblemSet("q_len", 4096), Boxed(Viewport(4000, 4001, 0, 1)), state=state)
    assert longer.asked == (4000, 0)
    assert after(Undo(), state=longer).asked is None


def test_texts_to_compare_with_come_and_go():
    state = after(Compared(0, "causal"), Compared(1, "dense"), Compared(0, "sink(4)"))
    assert state.shown.beside == ("sink(4)", "dense")
    assert after(Compared(0, " "), state=state).shown.beside == ("dense",)
    assert after(Undo(), Undo(), Undo(), state=state).shown.beside == ()
    assert after(*(Compared(n, "dense") for n in range(9))).shown.beside == ("dense",) * 3
    assert after(Opened(Work(text="causal")), state=state).shown.beside == ("sink(4)", "dense")
    half = after(Typed("causal & win"), Compared(0, "causal"))
    assert (half.work.text, half.shown.beside) == ("causal & win", ("causal",))


def test_a_box_of_another_page_zooms_whatever_the_tool():
    box = Viewport(0, 64, 0, 64)
    state = after(ToolChosen("add"), Zoomed(box))
    assert (state.viewport, state.shown) == (box, Work())


def test_opening_is_a_step_that_can_be_undone():
    work = Work(text="causal & chunk(8)", q_len=64)
    state = after(Boxed(Viewport(0, 8, 0, 8)), Opened(work, ("a note",)))
    assert (state.shown, state.viewport, state.notes) == (work, None, ("a note",))
    assert reduce(state, Undo()).work.text == PRESET
    assert reduce(state, Typed("causal")).notes == ()


def test_choices_of_the_other_pages_are_kept_here():
    state = after(TargetChosen("json"), Looked(20, 3))
    assert (state.target, state.look_layer, state.look_head) == ("json", 20, 3)


def test_document_lengths():
    assert document_lengths(" ") is None
    assert document_lengths("512, 256;256") == (512, 256, 256)
    for text in ("512,", "-1", "1e3", "a" * 10_000, "99999999999"):
        with pytest.raises(StudioError, match="expected document lengths such as"):
            document_lengths(text)


def test_documents_that_do_not_add_up_are_an_error_of_the_problem():
    state = after(Typed("causal & docs"), ProblemSet("docs", "500, 500"))
    with pytest.raises(StudioError, match="add up to kv_len 1024"):
        state.shown.problem()
