"""Every head as a thumbnail, where heads differ."""

from __future__ import annotations

from base64 import b64encode

import streamlit as st

from pattern_studio import BlockLayout

from .. import compute
from ..state import State
from .figures_panel import group

MOST = 16  # heads that fit in a row
SIDE = 64  # pixels, of which about half are shown: sharp on dense screens


def render(state: State, layout: BlockLayout) -> None:
    """Draw the strip; nothing where all heads are alike."""
    if layout.groups < 2:
        return
    group("Heads", f"{layout.groups} patterns; the first {MOST} heads" if layout.problem.heads > MOST else "")
    pictures = []
    for head in range(min(layout.problem.heads, MOST)):
        data = b64encode(compute.thumbnail(state, head, SIDE)).decode()
        chosen = " chosen" if head == state.head else ""
        pictures.append(
            f'<figure class="ps-head{chosen}"><img alt="Pattern of head {head}" src="data:image/png;base64,{data}">'
            f"<figcaption>{head}</figcaption></figure>"
        )
    st.html(f'<div class="ps-heads">{"".join(pictures)}</div>')
