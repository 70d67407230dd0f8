"""Design: the text, a form, the problem, the tile map, and what the pattern keeps and costs."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio import StudioError

from .. import compute, session
from ..components import (
    family_form,
    figures_panel,
    head_strip,
    layer_strip,
    laying_out,
    map_panel,
    pattern_file,
    problem_form,
    quality_panel,
    text_bar,
    theme_watch,
    why_panel,
)
from ..theme import colours


def render() -> None:
    """Draw the page for this visitor's state."""
    state = session.state()
    text_bar.render(state)
    for note in state.notes:
        st.warning(note, icon=":material/info:")
    family_form.render(state)
    left, middle, right = st.columns([15, 46, 39], gap="medium")
    with left:
        problem_form.render(state)
        pattern_file.render(state)
    try:
        job = compute.design_job(session.visitor(), state, colours())
        laid = laying_out.render(job, middle, right)
    except StudioError as error:
        laid = str(error)
    if laid is None:
        theme_watch.render()  # there is no map that would
        return
    if isinstance(laid, str):
        with middle:
            _misfit(laid)
        return
    layout, _ = laid
    with middle:
        map_panel.render(state, layout)
    with right, st.container(gap="xsmall", key="figures"):
        why_panel.render(state)
        figures_panel.render(laid)
        quality = st.container(gap="xsmall")
        head_strip.render(state, layout)
        layer_strip.render(state)
    with quality:  # last, since it may take a while
        quality_panel.render(state)


def _misfit(why: str) -> None:
    """The text can be read, but not lowered for this problem."""
    theme_watch.render()  # there is no map that would
    st.html(
        f'<div class="ps-wrong" role="alert">{escape(why[:600])}</div>'
        '<div class="ps-note">Change the problem on the left, or the text.</div>'
    )
