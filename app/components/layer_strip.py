"""Every kind of layer as a thumbnail that opens it, where layers differ."""

from __future__ import annotations

from base64 import b64encode

import streamlit as st

from .. import compute
from ..events import ProblemSet
from ..session import sends
from ..state import State
from ..theme import colours
from ..words import layer_cases
from .figures_panel import group

SIDE = 64  # pixels, of which about half are shown: sharp on dense screens


def render(state: State) -> None:
    """Draw the strip, the first layer of each case; nothing where all layers are alike."""
    cases = layer_cases(state.pattern)
    if not cases:
        return
    group("Layers", f"{len(cases)} kinds; the first {compute.LAYERS}" if len(cases) > compute.LAYERS else "")
    with st.container(horizontal=True, gap="xxsmall", key="layers"):
        for span in cases[: compute.LAYERS]:
            chosen = "-chosen" if state.shown.layer in span else ""
            name = f"{span.start}" if len(span) == 1 else f"{span.start} to {span[-1]}"
            with st.container(gap=None, width=62, key=f"layer-{span.start}{chosen}"):
                data = b64encode(compute.layer_thumbnail(state, span.start, SIDE, colours())).decode()
                st.html(f'<img class="ps-head" alt="Pattern of layer {name}" src="data:image/png;base64,{data}">')
                st.button(
                    name,
                    key=f"open layer {span.start}",
                    type="tertiary",
                    width="stretch",
                    on_click=sends(ProblemSet("layer", span.start)),
                )
