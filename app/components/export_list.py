"""Every target with how faithful it is, and its file to download."""

from __future__ import annotations

import streamlit as st

from pattern_studio.exporters import TARGETS, Export

from .. import compute, exporting
from ..events import TargetChosen
from ..session import sends
from ..state import State


def popover(state: State) -> None:
    """A button that opens the list; nothing is exported before it is opened."""
    box = st.popover("Export", icon=":material/download:", key="export", on_change="rerun")
    if box.open:
        with box:
            _exact(state)


def _exact(state: State) -> None:
    if exporting.is_long(state.shown):
        st.markdown(f"Beyond {exporting.LONG:,} tokens some files take minutes: the Export page writes one at a time.")
        st.button("Open the Export page", key="to export", on_click=sends(TargetChosen(state.target), "Export"))
        return
    st.markdown("These hold exactly the same pairs:")
    others = 0
    for name, target in TARGETS.items():
        result = compute.exported(state, name)
        if isinstance(result, str):
            others += 1
            continue
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"export-row-{name}"):
            st.markdown(f"**{name}**  \n:small[:gray[{_plain(target.about)}]]", width="stretch")
            download(result)
    if others:
        st.markdown(f":small[:gray[{others} more can't hold this pattern at this block; the Export page says why.]]")


def download(result: Export, label: str = "") -> None:
    """A button that saves an export's file."""
    st.download_button(
        label,
        result.content,
        file_name=f"pattern{result.suffix}",
        mime=result.media_type,
        key=f"download {result.target}{label}",
        icon=":material/download:",
        help=f"Save pattern{result.suffix}",
        on_click="ignore",
    )


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]()#+-.!|<>~:$" else letter for letter in text[:300])
