"""Every head as a thumbnail that opens it, where heads differ."""

from __future__ import annotations

from base64 import b64encode

import streamlit as st

from pattern_studio import BlockLayout

from .. import compute
from ..events import HeadChosen
from ..session import sends
from ..state import State
from ..theme import colours
from .figures_panel import group

MOST = 16  # heads that fit in a row
SIDE = 64  # pixels, of which about half are shown: sharp on dense screens


def render(state: State, layout: BlockLayout) -> None:
    """Draw the strip; nothing where all heads are alike."""
    if layout.groups < 2:
        return
    group("Heads", f"{layout.groups} patterns; the first {MOST} heads" if layout.problem.heads > MOST else "")
    with st.container(horizontal=True, gap="xxsmall", key="heads"):
        for head in range(min(layout.problem.heads, MOST)):
            with st.container(gap=None, width=46, key=f"head-{head}{'-chosen' if head == state.head else ''}"):
                data = b64encode(compute.thumbnail(state, head, SIDE, colours())).decode()
                st.html(f'<img class="ps-head" alt="Pattern of head {head}" src="data:image/png;base64,{data}">')
                st.button(
                    f"{head}",
                    key=f"open head {head}",
                    type="tertiary",
                    width="stretch",
                    on_click=sends(HeadChosen(head)),
                )
