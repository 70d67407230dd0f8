"""What the pattern keeps of the bundled model's attention: measured beside the page, shown when ready."""

from __future__ import annotations

import streamlit as st

from pattern_studio.metrics import Report

from .. import captures, compute
from ..session import visitor
from ..state import State
from ..work import document_lengths
from . import figures_panel
from .waiting import FAINT, NOTHING, awaited, has

_DONE = "Measured exactly, every row of every head."
_LAST = "last report"  # shown faintly while the next one is measured


def unknown() -> None:
    """Draw the places of the figures alone, while it is not known whether there is something to measure."""
    figures_panel.group("Quality", captures.chosen().title)
    figures_panel.quality(None)


def render(state: State) -> None:
    """Draw the figures, the last ones faintly while new ones are measured: always in the same places."""
    figures_panel.group("Quality", captures.chosen().title)
    docs = document_lengths(state.shown.docs)
    job = compute.quality_job(visitor(), state.pattern, state.shown.block, docs)
    measured = has(job)
    if measured:
        st.session_state[_LAST] = job.result()
    last: Report | None = st.session_state.get(_LAST)
    with st.container(gap="xsmall", key="quality"):
        places = figures_panel.quality(last)
        told = awaited([job], "Measuring the pattern on the capture …", _DONE, FAINT if last else NOTHING)
        if told and not measured:
            [st.session_state[_LAST]] = told
            figures_panel.quality(told[0], drawn=places)
