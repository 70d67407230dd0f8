"""Which results are shown: those that are installed, and files that the visitor brings."""

from __future__ import annotations

from html import escape

import streamlit as st

from ..events import PerformanceSet
from ..performance_view import KEPT, Given
from ..session import anew, on, sends
from ..timing_file import MAX_BYTES, TimingFile
from ..timing_folder import VARIABLE


def render(given: Given, own: tuple[TimingFile, ...]) -> None:
    """Draw the button that opens the list and the upload."""
    menu = st.popover("Results", icon=":material/folder_open:", width="content", key="results-menu")
    with menu, st.container(width=460, gap="small"):
        lines = [(file, "installed") for file in own] + [(file, "yours") for file in given.files]
        rows = "".join(
            f"<tr><td>{escape(file.name[:60])}</td><td>{len(file.rows):,} times</td><td>{where}</td></tr>"
            for file, where in lines
        )
        st.html(f'<table class="ps-rows">{rows}</table>' if rows else '<div class="ps-note">None are installed.</div>')
        if given.files:
            st.button("Without mine", key="forget results", on_click=sends(PerformanceSet("given", Given())))
        _upload(given)
        st.html(
            f'<div class="ps-note">The {KEPT} newest of yours stay, until this tab is closed. Who starts the app can '
            f"name a folder of results in {VARIABLE}.</div>"
        )


def _upload(given: Given) -> None:
    def took(file) -> PerformanceSet | None:
        return None if file is None else PerformanceSet("given", given.taken(file.name, file.getvalue()))

    key = anew("results file", given.count)  # another uploader after each file, so that none stays in memory
    st.file_uploader(
        "Upload results (.json of benchmarks.run)",
        type="json",
        key=key,
        on_change=on(key, took),
        max_upload_size=MAX_BYTES >> 20,
        help="What python -m benchmarks.run writes. Nothing in the file is run; it stays in memory.",
    )
