"""Figures that take long are stopped by their visitor: the page says so and keeps what was measured before."""

from __future__ import annotations

from threading import Event

import pytest
from pattern_studio_app import compute
from pattern_studio_app.events import Typed
from pattern_studio_app.state import reduce
from streamlit.testing.v1 import AppTest

import pattern_studio as ps
from pattern_studio.plot.colours import LIGHT
from tests.app.drive import figures, html, labelled
from tests.app.test_pages import expected, started, typed


def stop(at: AppTest, text: str) -> None:
    """Ask for what the page is going to ask for, in its visitor's name, and stop it at once."""
    visitor = at.session_state["studio session"].visitor
    gate = Event()
    busy = compute.job("somebody", ("busy", visitor), lambda: gate.wait(60))  # so that it can't be done before
    wish = compute.quality_job(visitor, ps.parse(text), (64, 64), None)
    wish.stop()
    gate.set()
    busy.result(60)


def table(at: AppTest) -> str:
    """The rows that lose most."""
    (found,) = [element.proto.body for element in at.get("html") if "<table" in element.proto.body]
    return found


def drawn(at: AppTest) -> list[str]:
    """The keys of the figures on the page."""
    return sorted(chart.proto.id.rsplit("-", 1)[1] for chart in at.get("plotly_chart"))


def again(at: AppTest) -> AppTest:
    (button,) = [button for button in at.button if button.label == "Begin again"]
    button.click().run()
    assert not at.exception
    return at


def test_design_keeps_the_last_figures_and_says_that_it_was_stopped():
    at = started("design")
    before = figures(at)
    stop(at, "causal & window(40, 0)")
    typed(at, "causal & window(40, 0)")
    assert "Stopped before it was done. Faint is what was measured before." in html(at)
    assert figures(at)["Recall, mean"] == before["Recall, mean"]
    assert figures(at)["Block"] != before["Block"]  # what follows from the layout is that of the new text
    again(at)
    assert "Stopped" not in html(at)
    assert figures(at)["Recall, mean"] != before["Recall, mean"]


def test_design_stopped_before_it_is_laid_out_shows_no_other_patterns_figures(monkeypatch: pytest.MonkeyPatch):
    at, gate, lower, text = started("design"), Event(), compute.lower, "causal & window(43, 0)"
    monkeypatch.setattr(compute, "lower", lambda *args, **more: gate.wait(60) and lower(*args, **more))
    session = at.session_state["studio session"]
    compute.design_job(session.visitor, reduce(session.state, Typed(text)), LIGHT).stop()
    gate.set()
    typed(at, text)
    assert "Stopped before it was done." in html(at)
    assert set(figures(at).values()) == {"…"}
    assert not [button for button in at.button if button.key == "whole"]  # of the map
    again(at)
    assert "Stopped" not in html(at)
    assert figures(at) | expected(text, ps.Problem(1024, heads=9)) == figures(at)
    assert [button for button in at.button if button.key == "whole"]


def test_a_refusal_is_found_once_however_often_the_page_is_drawn(monkeypatch: pytest.MonkeyPatch):
    calls, lower = [], compute.lower
    monkeypatch.setattr(compute, "lower", lambda *args, **more: calls.append(args) or lower(*args, **more))
    at = typed(started("design"), "causal & docs & window(44, 0)")
    for page in ("design", "design", "export", "design"):
        at.session_state["page"] = page
        at.run()
        assert "document" in html(at)
    assert len(calls) == 1


def test_quality_keeps_the_last_figures_faintly_until_it_begins_again():
    at = started("quality")
    before, rows = figures(at), table(at)
    assert drawn(at) == ["attention 7 0", "head table", "row recall"]
    stop(at, "causal & window(41, 0)")
    typed(at, "causal & window(41, 0)")
    assert "Stopped before it was done. Faint is what was measured before." in html(at)
    assert (figures(at), table(at)) == (before, rows)
    assert drawn(at) == ["attention 7 0", "head table before", "row recall before"]
    labelled(at.selectbox, "head").set_value(3).run()  # others can still be looked at
    assert drawn(at) == ["attention 7 3", "head table before", "row recall before"]
    assert "Layer 7, head 3" in html(at)
    labelled(at.selectbox, "layer").set_value(20).run()
    assert drawn(at) == ["attention 20 3", "head table before", "row recall before"]
    labelled(at.selectbox, "layer").set_value(7).run()
    again(at)
    assert "Stopped" not in html(at)
    assert drawn(at) == ["attention 7 3", "head table", "row recall"]
    labelled(at.selectbox, "head").set_value(0).run()
    assert figures(at) != before
    assert table(at) != rows


def test_quality_without_earlier_figures_says_only_that_it_was_stopped():
    at = started("design")
    at.session_state["page"] = "quality"
    stop(at, "causal & window(42, 0)")
    typed(at, "causal & window(42, 0)")
    assert "Stopped before it was done. Nothing was changed." in html(at)
    assert drawn(at) == []
    assert "<table" in html(again(at))


def test_quality_shows_nothing_older_beside_what_can_not_be_measured():
    at = typed(started("quality"), "causal & docs")
    assert "Not measured on this capture" in html(at)
    assert drawn(at) == []
    typed(at, "causal & (window(255, 0) | sink(4))")
    assert drawn(at) == ["attention 7 0", "head table", "row recall"]
