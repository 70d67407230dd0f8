"""Figures that take long are stopped by their visitor: the page says so and keeps what was measured before."""

from __future__ import annotations

from threading import Event

from pattern_studio_app import compute
from streamlit.testing.v1 import AppTest

import pattern_studio as ps
from tests.app.drive import figures, html
from tests.app.test_pages import started, typed


def stop(at: AppTest, text: str) -> None:
    """Ask for what the page is going to ask for, in its visitor's name, and stop it at once."""
    visitor = at.session_state["studio session"].visitor
    gate = Event()
    busy = compute.job("somebody", ("busy", visitor), lambda: gate.wait(60))  # so that it can't be done before
    wish = compute.quality_job(visitor, ps.parse(text), (64, 64), None)
    wish.stop()
    gate.set()
    busy.result(60)


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


def test_quality_says_that_it_was_stopped_until_it_begins_again():
    at = started("quality")
    assert "<table" in html(at)
    stop(at, "causal & window(41, 0)")
    typed(at, "causal & window(41, 0)")
    assert "Stopped before it was done." in html(at)
    assert "<table" not in html(at)
    assert "<table" in html(again(at))
