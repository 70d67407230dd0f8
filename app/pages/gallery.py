"""Gallery: named patterns with their picture, source and figures; one click opens any in Design."""

from __future__ import annotations

from html import escape

import streamlit as st

from .. import compute, numbers
from ..events import Opened
from ..presets import PRESETS, Preset
from ..session import sends
from ..state import State
from ..theme import colours

ACROSS = 5


def render() -> None:
    """Draw the cards, a few in a row."""
    for begin in range(0, len(PRESETS), ACROSS):
        for n, column in enumerate(st.columns(ACROSS, gap="small")):
            if begin + n < len(PRESETS):
                with column:
                    _card(PRESETS[begin + n], begin + n)


def _card(preset: Preset, n: int) -> None:
    state = State(work=preset.work, shown=preset.work)
    _, stats = compute.design(state)
    with st.container(border=True, gap="xsmall", key=f"card-{n}"):
        st.image(compute.thumbnail(state, stats.heads // 2, 256, colours()), width="stretch")
        st.html(
            f'<div class="ps-card"><b>{escape(preset.title)}</b><br>'
            f'<span class="ps-note">{escape(preset.source)}</span></div>'
            f'<div class="ps-note ps-about">{escape(preset.about)}</div>'
        )
        st.html(
            f'<div class="ps-note">{numbers.percent(stats.density.token)} of all pairs, '
            f"{numbers.percent(stats.density.block)} of tiles</div>"
        )
        st.button(
            "Open in Design", key=f"open {n}", width="stretch", on_click=sends(Opened(preset.work), leave_for="Design")
        )
