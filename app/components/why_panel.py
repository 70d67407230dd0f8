"""Why the query and key in the middle of a box see each other or not: the words of the pattern that decide it."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio import StudioError, explain

from ..state import State
from .figures_panel import group


def render(state: State) -> None:
    """Draw the reasons for the pair that was asked about; nothing where none was, or with another tool."""
    if state.asked is None or state.tool != "why":
        return
    row, key = state.asked
    shown = state.shown
    try:
        problem = shown.problem()
        found = explain(
            state.pattern, row + problem.offset, key, problem, head=state.head, layer=shown.layer, block=shown.block
        )
    except (StudioError, RecursionError) as error:
        words = str(error) if isinstance(error, StudioError) else "this pattern is nested too deeply to be explained"
        st.html(f'<div class="ps-note" role="alert">{escape(words[:300])}</div>')
        return
    group("Why", f"query row {row:,}, key {key:,}: {'allowed' if found.allowed else 'not allowed'}", first=True)
    marked, at = "", 0
    for reason in found.reasons:
        marked += (
            f"{escape(found.text[at : reason.start])}<mark>{escape(found.text[reason.start : reason.stop])}</mark>"
        )
        at = reason.stop
    st.html(f'<code class="ps-why">{marked}{escape(found.text[at:])}</code>')
    st.html("".join(f'<div class="ps-note">{escape(reason.sentence)}</div>' for reason in found.reasons[:4]))
