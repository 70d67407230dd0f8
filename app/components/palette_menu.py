"""The palette: words and presets that join the pattern, or replace it, at a click."""

from __future__ import annotations

from functools import partial

import streamlit as st

from ..events import Event, Inserted, Opened, OperatorChosen
from ..palette import OPERATORS, Entry, entries
from ..session import follow, on, sends
from ..state import State


def popover(state: State) -> None:
    """Draw the button; what is behind it is only made while it is open."""
    menu = st.popover("Palette", icon=":material/widgets:", key="palette", on_change="rerun")
    if not menu.open:
        return
    with menu:
        key = follow("operator", state.operator)
        st.segmented_control(
            "What is picked joins the text with",
            list(OPERATORS),
            default=state.operator,
            key=key,
            format_func=lambda sign: f"`{sign}`" if sign else "in its place",
            on_change=on(key, OperatorChosen),
            required=True,
            help="  \n".join(f"`{sign}` {about}" for sign, about in OPERATORS.items() if sign),
        )
        for title, presets in (("Words", False), ("Presets", True)):
            st.html(f'<div class="ps-group">{title}</div>')
            with st.container(horizontal=True, gap="xxsmall", key=f"palette-{title.lower()}"):
                for n, entry in enumerate(entries()):
                    if (entry.preset is not None) == presets:
                        st.button(
                            entry.title,
                            key=f"pick {n}",
                            help=f"{entry.about}  \n`{entry.text[:200]}`",
                            on_click=sends(partial(_picked, entry)),
                        )


def _picked(entry: Entry, state: State) -> Event:
    """A preset that takes the text's place brings the problem along that it is shown on."""
    operator = state.operator
    return Opened(entry.preset) if entry.preset and not operator else Inserted(entry.text, operator)
