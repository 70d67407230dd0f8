"""Quality: the real attention of a model under the pattern: what each head keeps and which rows lose it."""

from __future__ import annotations

from html import escape

import streamlit as st
from numpy.typing import NDArray
from streamlit.delta_generator import DeltaGenerator

from pattern_studio import StudioError
from pattern_studio.metrics import Report

from .. import captures, compute, session
from ..components import attention_map, capture_picker, head_table, record_form, row_recall, text_bar
from ..components.waiting import when_done
from ..events import Looked
from ..session import follow, on
from ..state import State
from ..work import document_lengths


def render() -> None:
    """Draw the page; the analysis runs beside it."""
    state = session.state()
    text_bar.render(state)
    left, right = st.columns([48, 52], gap="medium")
    place = right.empty()  # empty at once: what it showed was another pattern's
    with left:
        bar = st.container(horizontal=True, vertical_alignment="center", gap="small")
        recorded = st.container()
    with bar:
        capture_picker.render(state, recording=True)
    docs = document_lengths(state.shown.docs)
    visitor, block = session.visitor(), state.shown.block
    jobs = [
        compute.quality_job(visitor, state.pattern, block, docs),
        compute.mass_job(visitor, state.look_layer, block),
    ]
    with left:
        when_done(
            jobs, lambda report, mass: _page(state, bar, place, report, *mass), "Measuring the pattern on the capture …"
        )
    with recorded:
        record_form.watch()


def _page(state: State, bar: DeltaGenerator, right: DeltaGenerator, report: Report, number: int, mass: NDArray) -> None:
    layers = [layer.layer for layer in report.layers]
    layer = report.layers[layers.index(number)]
    head = min(state.look_head, len(layer.heads) - 1)
    with bar:
        _choice("layer", layers, number, lambda chosen: Looked(chosen, head))
        _choice("head", list(range(len(layer.heads))), head, lambda chosen: Looked(number, chosen))
        st.html(f'<div class="ps-note">{escape(captures.chosen().title)}</div>', width=200)
    try:
        attention_map.render(state, number, head, mass[head])
    except StudioError as error:
        st.warning(str(error))
    with right.container(gap="xsmall"):
        head_table.render(report, number, head)
        row_recall.render(layer, head)


def _choice(name: str, options: list[int], value: int, event) -> None:
    key = follow(f"look {name}", value)
    st.selectbox(
        name,
        options,
        options.index(value),
        key=key,
        format_func=lambda number: f"{name} {number}",
        on_change=on(key, event),
        label_visibility="collapsed",
        width=110,
    )
