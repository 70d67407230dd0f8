"""Fit: a pattern made from a capture at a budget, beside the best tiles and static patterns of its density."""

from __future__ import annotations

from html import escape

import streamlit as st

from .. import captures, fitting, session
from ..components import capture_picker, figures_panel, fit_form, fit_result, progress, text_bar
from ..fit_spec import LATER, NOTHING, FitSpec
from ..tasks import tasks

KIND = "fit"


def render() -> None:
    """Draw the form on the left, the fit on the right while it runs and when it is done."""
    state = session.state()
    text_bar.render(state, export=False)
    left, right = st.columns([24, 76], gap="medium")
    with left, st.container(gap="small"):
        capture_picker.render(state)
        st.html(f'<div class="ps-note">{escape(captures.chosen().title)}</div>')
        spec = state.fit.on(captures.chosen().gradients)
        fit_form.render(spec)
        _begin(spec)
    with right, st.container(gap="small"):
        task = tasks().of(session.visitor(), KIND)
        if task is None:
            with st.empty().container():  # the place that progress takes
                _empty()
        else:
            progress.render(task, KIND, lambda found: fit_result.render(spec, found))


def _begin(spec: FitSpec) -> None:
    source, others, name = captures.chosen(), captures.all_sources(), session.visitor()
    second = others.get(spec.held_out) if spec.held_out not in (LATER, NOTHING) else None
    if second is source:
        second = None

    def begin() -> None:
        tasks().begin(name, KIND, fitting.STEPS, lambda task: fitting.fit(spec, source, second, task))

    st.button(
        "Fit",
        type="primary",
        key="begin fit",
        width="stretch",
        on_click=begin,
    )


def _empty() -> None:
    figures_panel.group("Nothing fitted yet", first=True)
    st.html(
        '<div class="ps-note">Choose a layout and a budget, then press Fit. The pattern is made from the attention in '
        "the capture. What it keeps is shown beside the best tiles for the same budget and static patterns of its "
        "density, and one click takes its text to Design.</div>"
    )
