"""The Fit page: what a fit gives, what it is set beside, and the way to Design and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pattern_studio_app import captures, fitting, numbers
from pattern_studio_app.captures import source_of
from pattern_studio_app.components import fit_result
from pattern_studio_app.fit_spec import ANY, FREE, LATER, LAYOUTS, LOSS, MASS, NOTHING, FitSpec
from pattern_studio_app.fitting import STATIC, best_recall, fit
from pattern_studio_app.tasks import Stopped, Task, tasks
from streamlit.testing.v1 import AppTest

import pattern_studio as ps
from pattern_studio import StudioError
from pattern_studio.learned import FAMILIES, fit_blocks, fit_family
from pattern_studio.metrics import analyze, block_mass, row_recall

from .test_pages import html, labelled
from .toy import TOKENS, saved, toy, with_gradients

SMALL = FitSpec(density=0.5, block_q=16, block_k=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fit")


def source(folder: Path, **options):
    capture = toy(**options)
    return source_of(capture, saved(capture, folder / "toy.safetensors"))


def fitted(folder: Path, spec: FitSpec, second=None, **options) -> fitting.Fit:
    return fit(spec, source(folder, **options), second, Task(fitting.STEPS))


def test_the_layouts_are_what_learned_can_fit():
    assert tuple(LAYOUTS) == (FREE, *FAMILIES, ANY)


def test_free_tiles_are_those_of_fit_blocks(folder):
    found = fitted(folder, SMALL)
    again = fit_blocks(toy(), 0.5, (16, 8), row_floor=0.25, head_floor=0.25)
    assert found.fitted.pattern == again.pattern
    own = found.lines[0]
    assert (own.density, own.seen, own.unseen) == (again.achieved, again.fit.mean, None)
    assert all(line.unseen is None for line in found.lines)
    assert any("hardly transfer" in line for line in fit_result.told(found))
    assert "Nothing was held out" in " ".join(fit_result.told(found))


def test_the_oracle_is_the_one_of_analyze(folder):
    found = fitted(folder, SMALL)
    report = analyze(found.fitted.pattern, toy(), block=(16, 8), metrics=("recall", "oracle"))
    assert found.lines[1].seen == pytest.approx(report.oracle_recall, abs=1e-6)
    assert found.lines[1].seen >= found.lines[0].seen - 1e-9


@pytest.mark.parametrize("rows", [range(0, 48), range(48, TOKENS), range(0, 90)])
def test_the_oracle_of_some_rows_keeps_the_heaviest_tiles_there(rows):
    capture, pattern = (
        toy(tokens=rows.stop if rows.stop == 90 else TOKENS),
        ps.parse("causal & (window(20, 0)|sink(3))"),
    )
    tokens = len(capture.tokens)
    expected = []
    for number, layer in capture.layers.items():
        mass = block_mass(capture, number, (16, 8)).astype(float)  # a mean over each query block's rows
        for head in range(layer.heads):
            cells = []
            for block in range(rows.start // 16, -(-rows.stop // 16)):
                height = min(16, tokens - 16 * block)
                cells += [(value * height, block) for value in mass[head, block].tolist()]
            dense = ps.dense_mask(pattern, ps.Problem(tokens))[0]
            n = sum(
                dense[r : r + 16, k : k + 8].any()
                for r in range(rows.start, rows.stop, 16)
                for k in range(0, tokens, 8)
            )
            expected.append(sum(value for value, _ in sorted(cells, reverse=True)[:n]) / len(rows))
    assert best_recall(pattern, capture, (16, 8), rows) == pytest.approx(np.mean(expected), abs=1e-9)


def test_a_family_is_fitted_on_the_first_half_and_measured_on_the_second(folder):
    found = fitted(folder, FitSpec("local_window", 0.5, 16, 8, held_out=LATER))
    again = fit_family("local_window", toy(), 0.5, (16, 8), fit_rows=48, head_floor=0.25)
    assert found.fitted.pattern == again.pattern
    assert (found.lines[0].seen, found.lines[0].unseen) == (again.fit.mean, again.held_out.mean)
    assert "Held out: rows 48 to 95" in " ".join(fit_result.told(found))
    whole = fitted(folder, FitSpec("local_window", 0.5, 16, 8, held_out=NOTHING))
    assert whole.lines[0].unseen is None


def test_static_patterns_are_made_from_the_density_reached_and_measured_alike(folder):
    found = fitted(folder, FitSpec("local_window", 0.5, 16, 8))
    line = next(line for line in found.lines if line.title == "Window + 4 sinks")
    made = ps.generators.local_window(found.fitted.achieved, ps.Problem(TOKENS), (16, 8), sinks=4)
    assert line.density == made.achieved.block_of_causal <= found.fitted.achieved
    rows = np.concatenate([row_recall(made.pattern, toy(), n, (16, 8)) for n in (3, 5)])
    assert line.seen == pytest.approx(rows[:, :48].mean(), abs=1e-12)
    assert line.unseen == pytest.approx(rows[:, 48:].mean(), abs=1e-12)
    assert [line.title for line in found.lines[2:]] == list(STATIC)


def test_another_text_is_held_out_for_free_tiles_too(folder):
    second = source(folder, seed=1)
    found = fitted(folder, FitSpec(density=0.5, block_q=16, block_k=8, held_out=second.key), second)
    again = fit_blocks(toy(), 0.5, (16, 8), held_out=toy(1))
    assert found.lines[0].unseen == again.held_out.mean < found.lines[0].seen
    assert all((line.unseen is None) == (line.seen is None) for line in found.lines)
    assert "made up 1, CC0" in " ".join(fit_result.told(found))


def test_captures_that_do_not_match_are_refused(folder):
    with pytest.raises(StudioError, match="expected a held-out capture of 96 tokens"):
        fitted(folder, SMALL, source(folder, seed=1, tokens=64))


def test_a_budget_below_the_floors_says_what_to_do(folder):
    with pytest.raises(StudioError, match="ask for more, lower row_floor and head_floor, or protect fewer"):
        fitted(folder, FitSpec(density=0.01, block_q=16, block_k=8))


def test_a_static_pattern_that_the_budget_does_not_pay_for_says_so(folder):
    found = fitted(folder, FitSpec(density=0.15, block_q=16, block_k=8, floor=0))
    notes = {line.title: line.note for line in found.lines if line.seen is None}
    assert notes, "at so small a budget no static family is left out"
    assert all("budget" in note or "density" in note for note in notes.values())


def test_a_model_that_sees_all_keys(folder):
    found = fitted(folder, FitSpec("local_window", 0.5, 16, 8, held_out=LATER), causal=False)
    assert found.lines[0].unseen is None  # rows that see all keys can't be held out
    assert found.lines[1].seen <= 1


def by_loss(folder: Path, spec: FitSpec, second=None) -> fitting.Fit:
    capture = with_gradients()
    return fit(spec, source_of(capture, saved(capture, folder / "minded.npz")), second, Task(fitting.STEPS))


def test_by_loss_free_tiles_are_those_that_the_loss_minds(folder):
    spec, capture = replace(SMALL, by=LOSS), with_gradients()
    found = by_loss(folder, spec)
    again = fit_blocks(capture, 0.5, (16, 8), gradients=capture.gradients, by_distance=0.5)
    assert found.fitted.pattern == again.pattern != fit_blocks(capture, 0.5, (16, 8)).pattern
    assert found.lines[0].title == "Fitted: free tiles, by loss"
    report = analyze(again.pattern, capture, block=(16, 8), metrics=("recall", "oracle"))
    assert found.lines[0].seen == pytest.approx(report.recall.mean, abs=1e-6)  # recall stays that of mass
    assert found.lines[1].seen == pytest.approx(report.oracle_recall, abs=1e-6)
    said = " ".join(fit_result.told(found))
    assert "Chosen by what the loss minds, not by the attention mass that recall is of." in said
    assert fit_result.TRANSFER_BY_LOSS in said
    assert "hardly transfer" not in said


def test_by_loss_a_family_sees_the_whole_text(folder):
    capture, spec = with_gradients(), FitSpec("local_window", 0.5, 16, 8, held_out=LATER, by=LOSS)
    found = by_loss(folder, spec)
    again = fit_family("local_window", capture, 0.5, (16, 8), gradients=capture.gradients)
    assert found.fitted.pattern == again.pattern
    assert all(line.unseen is None for line in found.lines)
    second = source(folder, seed=1)
    again = fit_family("local_window", capture, 0.5, (16, 8), gradients=capture.gradients, held_out=toy(1))
    assert by_loss(folder, replace(spec, held_out=second.key), second).lines[0].unseen == again.held_out.mean


def test_by_mass_gradients_change_nothing(folder):
    assert by_loss(folder, SMALL).fitted == fitted(folder, SMALL).fitted


def test_by_loss_without_gradients_says_what_to_do(folder):
    with pytest.raises(StudioError, match="record it with pattern-studio capture --gradients, or choose by attention"):
        fitted(folder, replace(SMALL, by=LOSS))


def test_a_stopped_fit_stops(folder):
    task = Task(fitting.STEPS)
    task.stop()
    with pytest.raises(Stopped):
        fit(SMALL, source(folder), None, task)


def test_the_note_on_transfer_is_what_was_measured():
    root = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-28-selection.json"
    rows = json.loads(root.read_text())["rows"]
    at = {
        row["way"]: row["recall"]
        for row in rows
        if (row.get("study"), row.get("block"), row.get("requested_block_density")) == ("long", [64, 8], 0.1)
    }
    for way in ("fitted blocks", "fitted blocks, on the fit's own text", "local_window"):
        assert f"{int(1000 * at[way]) / 10} %" in fit_result.TRANSFER


def test_the_note_on_the_transfer_of_a_fit_by_loss_is_what_was_measured():
    folder = Path(__file__).parents[2] / "benchmarks" / "results"
    names = ("2026-11-28-fitted-loss", "2026-11-29-by-loss-fitted-loss", "2026-11-29-by-loss-reversed-fitted-loss")
    added = {
        (row["way"], row["fitted_on"]): f"{100 * row['relative']:.2f}"
        for name in names
        for row in json.loads((folder / f"{name}.json").read_text())["rows"]
        if not row["fitted_on_scored_text"] and row["block"] == [64, 8] and row["requested_block_density"] == 0.25
    }
    loss, mass = ([value for (one, _), value in added.items() if one == f"tiles by {by}"] for by in ("loss", "mass"))
    assert f"added {' and '.join(loss)} % to the loss" in fit_result.TRANSFER_BY_LOSS
    assert f"a floor of 25 %, {' and '.join(mass)} %." in fit_result.TRANSFER_BY_LOSS


def one_page() -> None:
    import streamlit as st
    from pattern_studio_app import session
    from pattern_studio_app.pages import design, fit

    {"fit": fit, "design": design}[st.session_state["page"]].render()
    session.state()


@pytest.fixture
def at() -> AppTest:
    """The Fit page with the small capture, as if uploaded."""
    at = AppTest.from_function(one_page, default_timeout=120)
    at.session_state["page"] = "fit"
    at.run()
    assert not at.exception
    return at


def with_toy(at: AppTest, folder: Path, seed: int = 0, causal: bool = True, make=toy) -> AppTest:
    capture = make(seed, causal=causal)
    data = saved(capture, folder / "toy.npz")
    at.file_uploader[0].set_value(("toy.npz", data, "application/octet-stream")).run()
    assert not at.exception
    return at


def small(at: AppTest) -> AppTest:
    labelled(at.slider, "Block density, %").set_value(50).run()
    labelled(at.selectbox, "Block, rows").set_value(16).run()
    labelled(at.selectbox, "Block, keys").set_value(8).run()
    return at


def fit_now(at: AppTest) -> AppTest:
    at.button(key="begin fit").click().run()
    task = tasks().of(visitor(at), "fit")
    task.future.exception(60)
    at.run()
    assert not at.exception
    return at


def visitor(at: AppTest) -> str:
    return at.session_state["studio session"].visitor


def test_before_a_fit_the_page_says_what_to_do(at):
    assert "Nothing fitted yet" in html(at)
    assert labelled(at.selectbox, "Held out").options == ["nothing"]
    labelled(at.selectbox, "Layout").set_value("columns").run()
    assert labelled(at.selectbox, "Held out").options == ["nothing", "the second half of the rows"]
    assert labelled(at.selectbox, "Held out").value == LATER


def test_a_fit_from_the_form_is_opened_in_design_and_undone(at, folder):
    fit_now(small(with_toy(at, folder)))
    again = fit_blocks(toy(), 0.5, (16, 8))
    assert f"<td>{numbers.percent(again.fit.mean)}</td>" in html(at)
    assert "Fitted on rows 0 to 95 of made up 0, CC0" in html(at)
    assert html(at).count("<img ") == 8
    at.button(key="open fit").click().run()
    at.session_state["page"] = "design"
    at.run()
    assert not at.exception
    state = at.session_state["studio session"].state
    assert state.pattern == again.pattern
    assert (state.shown.q_len, state.shown.heads, state.shown.block, state.shown.layer) == (TOKENS, 4, (16, 8), 3)
    at.button(key="undo").click().run()
    assert labelled(at.text_input, "Pattern").value == "causal & (window(255, 0) | sink(4))"


def test_by_loss_is_for_captures_with_gradients(at, folder):
    assert labelled(at.selectbox, "Chosen by").disabled
    assert "pattern-studio capture --gradients" in html(at)
    with_toy(at, folder, make=with_gradients)
    labelled(at.selectbox, "Layout").set_value("columns").run()
    assert not labelled(at.selectbox, "Chosen by").disabled
    assert "capture --gradients" not in html(at)
    assert "the second half of the rows" in labelled(at.selectbox, "Held out").options
    labelled(at.selectbox, "Chosen by").set_value(LOSS).run()
    assert labelled(at.selectbox, "Held out").options == ["nothing", f"another text: {captures.BUNDLED.title}"]
    labelled(at.selectbox, "Layout").set_value(FREE).run()
    fit_now(small(at))
    capture = with_gradients()
    again = fit_blocks(capture, 0.5, (16, 8), gradients=capture.gradients, by_distance=0.5)
    assert f"<td>{numbers.percent(again.fit.mean)}</td>" in html(at)
    assert "Fitted: free tiles, by loss" in html(at)
    assert "this is the fit before" not in html(at)
    # With a capture without gradients it is mass again, and the fit that is shown is told from what the form says.
    with_toy(at, folder, seed=1)
    assert (labelled(at.selectbox, "Chosen by").value, labelled(at.selectbox, "Chosen by").disabled) == (MASS, True)
    assert "this is the fit before" in html(at)
    fit_now(at)
    assert f"<td>{numbers.percent(fit_blocks(toy(1), 0.5, (16, 8)).fit.mean)}</td>" in html(at)
    assert "tiles, by loss" not in html(at)


def test_the_form_and_the_fit_survive_a_change_of_page(at, folder):
    fit_now(small(with_toy(at, folder)))
    for page in ("design", "fit"):
        at.session_state["page"] = page
        at.run()
        assert not at.exception
    assert labelled(at.slider, "Block density, %").value == 50
    assert "Fitted: free tiles" in html(at)
    labelled(at.slider, "Block density, %").set_value(60).run()
    assert "this is the fit before" in html(at)


def test_an_error_of_a_fit_is_one_sentence(at, folder):
    with_toy(at, folder)
    labelled(at.slider, "Block density, %").set_value(1).run()
    fit_now(at)
    assert "but the floors and the protected tiles take" in html(at)
    assert "key" not in {button.key for button in at.button if button.key == "open fit"}


def test_a_second_capture_can_be_held_out(at, folder):
    with_toy(with_toy(at, folder, seed=1), folder, seed=0)
    small(at)
    options = labelled(at.selectbox, "Held out").options
    assert options[-1].startswith("another text: toy 1, CC0, 96 tokens")
    labelled(at.selectbox, "Held out").select_index(len(options) - 1).run()
    fit_now(at)
    again = fit_blocks(toy(), 0.5, (16, 8), held_out=toy(1))
    assert f"<td>{numbers.percent(again.held_out.mean)}</td>" in html(at)


def test_a_fit_can_be_stopped(at, folder):
    with_toy(at, folder)
    task = tasks().begin(visitor(at), "fit", 1, lambda task: None)
    task.stop()
    at.run()
    assert "Stopped; nothing was changed." in html(at)
    assert not at.exception
