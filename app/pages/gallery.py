"""Gallery: named patterns with their picture, source and figures; one click opens any in Design."""

from __future__ import annotations

import streamlit as st

from .. import compute, numbers
from ..events import Opened
from ..presets import PRESETS, Preset
from ..session import sends
from ..state import State

ACROSS = 4


def render() -> None:
    """Draw the cards, a few in a row."""
    for begin in range(0, len(PRESETS), ACROSS):
        for n, column in enumerate(st.columns(ACROSS, gap="medium")):
            if begin + n < len(PRESETS):
                with column:
                    _card(PRESETS[begin + n], begin + n)


def _card(preset: Preset, n: int) -> None:
    state = State(work=preset.work, shown=preset.work)
    _, stats = compute.design(state)
    with st.container(border=True, gap="xsmall", key=f"card-{n}"):
        st.image(compute.thumbnail(state, head=stats.heads // 2, side=256), width="stretch")
        st.markdown(f"**{preset.title}**  \n:gray[:small[{preset.source}]]")
        st.html(f'<div class="ps-note ps-about">{preset.about}</div>')
        st.html(
            f'<div class="ps-note">{numbers.percent(stats.density.token)} of all pairs, '
            f"{numbers.percent(stats.density.block)} of tiles</div>"
        )
        st.button(
            "Open in Design", key=f"open {n}", width="stretch", on_click=sends(Opened(preset.work), leave_for="Design")
        )
