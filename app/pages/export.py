"""Export: every target, how faithfully it holds the pattern, and the code or file."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio.exporters import TARGETS

from .. import compute, session
from ..components import export_list, text_bar
from ..events import TargetChosen
from ..session import follow, on
from ..state import State

LINES = 400  # of code that are shown; the file has all
INEXACT = ("cover", "lossy")


def render() -> None:
    """Draw the targets on the left, the chosen one's content on the right."""
    state = session.state()
    text_bar.render(state, export=False)
    left, right = st.columns([20, 80], gap="medium")
    with left:
        key = follow("target", state.target)
        st.radio(
            "Target",
            list(TARGETS),
            list(TARGETS).index(state.target),
            key=key,
            on_change=on(key, TargetChosen),
        )
    with right:
        _target(state)


def _target(state: State) -> None:
    target = TARGETS[state.target]
    st.html(f'<div class="ps-note">{escape(target.about)}, for {escape(target.consumer)}</div>')
    result = compute.exported(state, state.target)
    if isinstance(result, str):
        st.warning(result, icon=":material/info:")
        result = compute.exported(state, state.target, INEXACT)
        if isinstance(result, str) or not st.toggle("Write it all the same", key=f"inexact {state.target}"):
            return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(str(result.fidelity), color="blue" if result.fidelity.kind == "exact" else "orange")
        st.html(f'<div class="ps-note">{len(result.data):,} bytes</div>', width="stretch")
        export_list.download(result, "Save the file")
    for note in result.notes:
        st.html(f'<div class="ps-note">{escape(note)}</div>')
    _content(result.content, result.suffix)


def _content(content: str | bytes, suffix: str) -> None:
    if isinstance(content, bytes):
        st.markdown("A binary file. Read it back in Python:")
        st.code(f'from pattern_studio.exporters import read\n\nlayout = read("pattern{suffix}")', language="python")
        return
    lines = content.splitlines()
    st.code("\n".join(lines[:LINES]), language={".py": "python", ".json": "json"}.get(suffix), height=520)
    if len(lines) > LINES:
        st.html(f'<div class="ps-note">The first {LINES} of {len(lines):,} lines; the file has all.</div>')
