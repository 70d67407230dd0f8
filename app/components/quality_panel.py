"""What the pattern keeps of the bundled model's attention: measured beside the page, shown when ready."""

from __future__ import annotations

import streamlit as st

from pattern_studio.metrics import Report

from .. import captures, compute
from ..session import visitor
from ..state import State
from ..work import document_lengths
from . import figures_panel
from .waiting import when_done

_LAST = "last report"  # shown faintly while the next one is measured, so that nothing jumps


def render(state: State) -> None:
    """Draw the figures, or the last ones faintly while new ones are measured."""
    figures_panel.group("Quality", captures.chosen().title)
    docs = document_lengths(state.shown.docs)
    job = compute.quality_job(visitor(), state.pattern, state.shown.block, docs)
    when_done([job], _show, "Measuring the pattern on the capture …", _last)


def _show(report: Report) -> None:
    st.session_state[_LAST] = report
    with st.container(gap="xsmall", key="quality"):
        figures_panel.quality(report)
    st.html('<div class="ps-note">Measured exactly, every row of every head.</div>')


def _last() -> bool:
    report = st.session_state.get(_LAST)
    if report is not None:
        with st.container(gap="xsmall", key="quality-old"):
            figures_panel.quality(report)
    return report is not None
