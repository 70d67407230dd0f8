"""The bridge to Streamlit: nothing that a visitor did is forgotten, however quickly the next thing follows."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def hurried() -> None:
    """Two widgets; while the first one's callback runs, the browser asks for another run."""
    import streamlit as st
    from pattern_studio_app.events import Typed, Undo
    from pattern_studio_app.session import follow, on, sends, state
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    def the_next_thing_happens() -> None:
        requests = get_script_run_ctx().script_requests
        requests.request_rerun(RerunData(widget_states=None))

    st.toggle("hurry", key="hurry", on_change=the_next_thing_happens)
    key = follow("text", state().work.text)
    st.text_input("text", state().work.text, key=key, on_change=on(key, Typed))
    st.button("undo", key="undo", on_click=sends(Undo()))
    st.text(state().work.text)


def test_an_edit_that_is_overtaken_while_it_is_told_is_kept():
    at = AppTest.from_function(hurried, default_timeout=30).run()
    at.toggle[0].set_value(True)
    at.text_input[0].set_value("causal").run()
    assert not at.exception
    assert (at.text[0].value, at.text_input[0].value) == ("causal", "causal")


def test_a_click_that_is_overtaken_while_it_is_told_is_kept():
    at = AppTest.from_function(hurried, default_timeout=30).run()
    at.text_input[0].set_value("causal").run()
    at.toggle[0].set_value(True)
    at.button[0].click().run()
    assert not at.exception
    assert at.text[0].value == "causal & (window(255, 0) | sink(4))"
