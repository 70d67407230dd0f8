"""Which capture is measured on: the bundled one, an uploaded file, or what was recorded from a model."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio import StudioError

from .. import captures, uploads
from ..events import CaptureChosen, Event
from ..session import anew, follow, on
from ..state import State
from ..theme import MAX_UPLOAD
from . import record_form


def render(state: State, recording: bool = False) -> None:
    """Draw the button that opens the list and the upload; with `recording` a form to record from a model, too."""
    kept = captures.store()
    menu = st.popover("Capture", icon=":material/dataset:", width="content", key="capture-menu")
    with menu, st.container(width=520, gap="small"):
        _list(state)
        _upload(kept)
        if recording:
            record_form.render(kept)


def _list(state: State) -> None:
    sources = captures.all_sources()
    key = follow("capture", state.capture)
    st.selectbox(
        "Measured on",
        list(sources),
        list(sources).index(state.capture) if state.capture in sources else 0,
        key=key,
        format_func=lambda name: sources[name].title,
        on_change=on(key, CaptureChosen),
        help=f"Yours alone, and gone with this tab; the {captures.KEPT} newest stay.",
    )


def _upload(kept: captures.Store) -> None:
    def took(file) -> Event | None:
        if file is None:
            return None
        kept.files += 1
        try:
            source = uploads.read_capture(file.name, file.getvalue())
        except StudioError as error:
            kept.problem = str(error)
            return None
        kept.problem = ""
        kept.add(source)
        return CaptureChosen(source.key)

    key = anew("capture file", kept.files)  # another uploader after each file, so that none stays in memory
    st.file_uploader(
        "Upload a capture (.safetensors or .npz)",
        key=key,
        on_change=on(key, took),
        max_upload_size=MAX_UPLOAD,
        help="q, k and v of a model, as pattern-studio capture writes them (pattern-studio-capture/1). Nothing in the "
        "file is run; it stays in memory.",
    )
    if kept.problem:
        st.html(f'<div class="ps-wrong" role="alert">{escape(kept.problem)}</div>')
