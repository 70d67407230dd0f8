"""Open a file in Design: a pattern that was exported, or a mask."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import streamlit as st

from pattern_studio import StudioError

from .. import uploads
from ..events import Event, Opened
from ..session import anew, on
from ..state import State
from ..theme import MAX_UPLOAD

_KEY = "studio pattern file"
CELLS = ("pair of tokens", "tile")


@dataclass
class _Given:
    """What was wrong with the last file, how many there were, and what a mask's cells are."""

    problem: str = ""
    files: int = 0
    cell: str = CELLS[0]


def render(state: State) -> None:
    """Draw the button that opens the upload, in which what was wrong with the last file is said, too."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = _Given()
    given: _Given = st.session_state[_KEY]
    with st.popover("Open a file", icon=":material/upload_file:", width="stretch"), st.container(width=440):
        block = " x ".join(map(str, state.shown.block))
        cell = st.radio(
            "A mask has a cell for each",
            CELLS,
            CELLS.index(given.cell),
            horizontal=True,
            key="mask cells",
            format_func=lambda name: f"{name} of {block}" if name == CELLS[1] else name,
        )
        given.cell, work = cell, state.shown

        def took(file) -> Event | None:
            if file is None:
                return None
            given.files += 1
            try:
                found = uploads.read_pattern(file.name, file.getvalue(), work, cell == CELLS[1])
            except StudioError as error:
                given.problem = str(error)
                return None
            given.problem = ""
            return Opened(found)

        key = anew("pattern file", given.files)
        st.file_uploader(
            "A pattern (.json, .npz, .safetensors) or a mask (.npy, .npz)",
            key=key,
            on_change=on(key, took),
            max_upload_size=MAX_UPLOAD,
            help="What Pattern Studio exported, with its problem and block; or a mask, 1 where a query sees a key, "
            "[rows, keys] or [heads, rows, keys]. Undo brings back what was there.",
        )
        if given.problem:
            st.html(f'<div class="ps-wrong" role="alert">{escape(given.problem)}</div>')
