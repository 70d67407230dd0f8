"""Quality: the real attention of a model under the pattern: what each head keeps and which rows lose it."""

from __future__ import annotations

from concurrent.futures import Future
from html import escape

import streamlit as st
from numpy.typing import NDArray
from streamlit.delta_generator import DeltaGenerator

from pattern_studio import StudioError
from pattern_studio.metrics import LayerReport, Report

from .. import captures, compute, session
from ..components import attention_map, capture_picker, head_table, record_form, row_recall, text_bar
from ..components.waiting import FAINT, NOTHING, has, stopped, when_done
from ..events import Looked
from ..session import follow, on
from ..state import State
from ..work import document_lengths

_LAST = "last report on Quality"  # with its capture's key


def render() -> None:
    """Draw the page; the analysis runs beside it."""
    state = session.state()
    text_bar.render(state)
    left, right = st.columns([48, 52], gap="medium")
    place = right.empty()
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
    capture, last = st.session_state.get(_LAST, ("", None))
    before = last if capture == captures.chosen().key and not all(map(has, jobs)) else None
    if before is None:
        place.empty()  # at once: what it showed was another pattern's
    else:
        _before(state, place, before)
    with left:
        measured, kept = st.container(), st.empty()  # empty at once, as above
    with measured:
        when_done(
            jobs,
            lambda report, mass: _page(state, bar, place, report, *mass),
            "Measuring the pattern on the capture …",
            FAINT if before else NOTHING,
        )
    if before and any(map(stopped, jobs)):
        with kept.container():
            _stopped(state, bar, before, jobs[1])
    elif not all(map(has, jobs)):
        place.empty()  # it can't be measured on this capture, and the page says why
    with recorded:
        record_form.watch()


def _before(state: State, right: DeltaGenerator, report: Report) -> None:
    """The last figures of this capture, faintly, while those of the pattern are not there."""
    layer, head = _looked(state, report)
    with right.container(gap="xsmall", key="measured-before"):
        # Keys of their own: the new figures take their place in the same run.
        head_table.render(report, layer.layer, head, key="head table before")
        row_recall.render(layer, head, key="row recall before")


def _stopped(state: State, bar: DeltaGenerator, report: Report, mass: Future[tuple[int, NDArray]]) -> None:
    """What can still be looked at: other heads of the last figures, and the attention, which no pattern changes."""
    layer, head = _looked(state, report)
    _choices(bar, report, layer, head)
    if not stopped(mass):
        when_done([mass], lambda found: _map(state, layer.layer, head, found[1]), "Measuring the layer's attention …")


def _looked(state: State, report: Report) -> tuple[LayerReport, int]:
    layer = _layer(report, state.look_layer)
    return layer, min(state.look_head, len(layer.heads) - 1)


def _layer(report: Report, number: int) -> LayerReport:
    """The layer with this number, or the first where there is none, as in `compute.mass_job`."""
    layers = {layer.layer: layer for layer in report.layers}
    return layers.get(number, layers[min(layers)])


def _page(state: State, bar: DeltaGenerator, right: DeltaGenerator, report: Report, number: int, mass: NDArray) -> None:
    st.session_state[_LAST] = captures.chosen().key, report
    layer = _layer(report, number)
    head = min(state.look_head, len(layer.heads) - 1)
    _choices(bar, report, layer, head)
    _map(state, number, head, mass)
    with right.container(gap="xsmall"):
        head_table.render(report, number, head)
        row_recall.render(layer, head)


def _map(state: State, layer: int, head: int, mass: NDArray) -> None:
    try:
        attention_map.render(state, layer, head, mass[head])
    except StudioError as error:
        st.warning(str(error))


def _choices(bar: DeltaGenerator, report: Report, layer: LayerReport, head: int) -> None:
    number, heads = layer.layer, list(range(len(layer.heads)))
    with bar:
        _choice("layer", [one.layer for one in report.layers], number, lambda chosen: Looked(chosen, head))
        _choice("head", heads, head, lambda chosen: Looked(number, chosen))
        st.html(f'<div class="ps-note">{escape(captures.chosen().title)}</div>', width=200)


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
