"""The Performance page: what was measured and what is predicted, each under its own name."""

from __future__ import annotations

from collections import Counter

import pytest
from pattern_studio_app import numbers, timing_folder
from pattern_studio_app.components.time_panel import milliseconds
from pattern_studio_app.events import PerformanceSet
from pattern_studio_app.performance_view import Given, PerformanceView
from pattern_studio_app.prediction import MODEL_CARD
from pattern_studio_app.timing_file import TimingFile, read
from pattern_studio_app.timing_folder import installed
from pattern_studio_app.timings import measured
from streamlit.testing.v1 import AppTest

from pattern_studio.metrics import layout_cost
from tests.app.drive import begun, figures, html, labelled, settled
from tests.app.timing_rows import TEXT, data, linear, row, subject


def page() -> None:
    from pattern_studio_app.pages import performance

    performance.render()


def started(**params: str) -> AppTest:
    return begun(page, **params)


def given_to(at: AppTest, *rows: dict) -> AppTest:
    given_files = Given().taken("mine.json", data(*rows))
    at.session_state["studio session"].happened(PerformanceSet("given", given_files))
    return settled(at)


def test_the_page_shows_the_measured_cells_and_a_prediction_that_says_so():
    at = started(p=TEXT, q="32768", h="16", bq="128", bk="128")
    labelled(at.selectbox, "Card").set_value(MODEL_CARD)  # of which the expected prediction is
    settled(at)
    cost = layout_cost(subject(q_len=32768).layout, 128)
    kept = measured(installed()[0], "forward")  # whatever runs are kept, of whatever cards
    cells = [one for one in kept if (one.row.dim, one.row.card) == (128, MODEL_CARD)]
    dense = min(one.ms for one in cells if one.is_dense and one.row.tokens == 32768)
    assert figures(at) == {
        "Predicted time": milliseconds(cost.forward_ms),
        "Predicted speed-up": f"{numbers.fraction(dense / cost.forward_ms)}x",
    }
    assert f"wrong by {numbers.percent(cost.forward_error)} in the median of cells that it was not fitted to" in html(
        at
    )
    assert "Measured time: none, this pattern was not timed with these tensors." in html(at)
    table = at.dataframe[0].value
    assert len(table) == sum(one.row.tokens == 32768 for one in cells)
    assert set(table["tokens"]) == {32768}
    labelled(at.selectbox, "Length").set_value(-1)
    assert len(settled(at).dataframe[0].value) == len(cells)
    at.button_group[0].set_value("backward")
    settled(at)
    assert figures(at)["Predicted time"] == milliseconds(cost.backward_ms)
    at.button_group[0].set_value("both")
    assert figures(settled(at))["Predicted time"] == milliseconds(cost.forward_ms + cost.backward_ms)


def test_dense_was_measured_and_both_names_are_shown():
    at = started(p="dense", q="32768", h="16", bq="128", bk="128")
    labelled(at.selectbox, "Card").set_value(MODEL_CARD)
    shown = figures(settled(at))
    assert {"Predicted time", "Measured: FlashAttention-4, dense"} <= shown.keys()
    assert shown["Measured: FlashAttention-4, dense"] == "12.1 ms"
    assert shown["Predicted time"] != shown["Measured: FlashAttention-4, dense"]


def test_results_of_another_card_are_chosen_and_predicted_from():
    at = given_to(
        started(p=TEXT, q="4096", h="16", bq="128", bk="128"), *linear(), row(pattern=TEXT, arm="flex", ms=0.75)
    )
    labelled(at.selectbox, "Card").set_value("Card X")
    shown = figures(settled(at))
    assert shown["Measured: FlexAttention, compiled"] == "0.750 ms"
    assert shown["Predicted time"] == milliseconds(0.5 + 4 * 128 * subject(card="Card X").layout.tile_pairs / 200e9)
    assert "fitted to 4 cells on Card X" in html(at)
    assert "mine.json" in html(at)
    at.button(key="forget results").click()
    left = labelled(settled(at).selectbox, "Card").options
    assert left[0] == Counter(kept.card for file in installed()[0] for kept in file.rows).most_common(1)[0][0]
    assert set(left) == {one.row.card for one in measured(installed()[0], "forward")}


def test_what_cannot_be_told_is_not_told():
    at = given_to(started(p=TEXT), *(row(arm="<script>alert(1)</script>", card="<b>X", D=80),))
    labelled(at.selectbox, "Card").set_value("<b>X")
    settled(at)
    assert not at.metric
    assert "Not predicted: too few cells of our kernels are known on &lt;b&gt;X." in html(at)
    assert "<script>" not in html(at)
    labelled(at.selectbox, "Head dim").set_value(64)
    assert "Nothing was measured at D 64 on &lt;b&gt;X." in html(settled(at))


def test_small_work_is_marked_as_an_extrapolation_without_a_speed_up():
    at = started(q="128")  # shorter than every cell: a few patterns on small grids were timed at 256 tokens
    assert figures(at)["Predicted speed-up"] == "none"
    assert "This is less or more work than any cell that was measured on the card: an extrapolation." in html(at)
    assert "it is assumed that FLOPs cost the same here" in html(at)  # blocks of 64


def test_a_bad_file_and_a_problem_that_is_none_are_said():
    at = started(docs="1, 2")
    assert "must add up to kv_len 1024" in html(at)
    at.session_state["studio session"].happened(PerformanceSet("given", Given().taken("mine.json", b"PK")))
    assert "mine.json: expected whole JSON, got something else" in html(settled(at))


def test_without_any_results_the_page_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timing_folder, "OWN", ())
    at = started()
    assert "Nothing was measured at D 64" in html(at)
    assert "None are installed." in html(at)
    assert "Predicted time" in figures(at)  # by the model, which needs no file


def test_choices_survive_what_the_results_no_longer_have():
    from pattern_studio_app.pages.performance import choices

    file = TimingFile("x", read(data(row(), row(S=8192)), "x").rows)
    assert choices(PerformanceView(card="gone", dim=96, tokens=7), (file,)).tokens == 8192
    assert choices(PerformanceView(card="gone"), (file,)).card == "Card X"


def test_the_length_shown_first_is_that_of_most_times():
    from pattern_studio_app.pages.performance import choices

    few_long = TimingFile("x", read(data(row(S=8192), row(S=8192, arm="flex"), row(S=131072)), "x").rows)
    chosen = choices(PerformanceView(), (few_long,))
    assert (chosen.lengths, chosen.tokens) == ([131072, 8192], 8192)
