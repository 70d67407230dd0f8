"""The tile map, what a box on it does, and which head it shows."""

from __future__ import annotations

import streamlit as st

from pattern_studio import BlockLayout
from pattern_studio.plot import Viewport
from pattern_studio.plot.grid import Axis, grid_of
from pattern_studio.plot.hover import FEW_TILES

from .. import compute
from ..events import Boxed, HeadChosen, ToolChosen, ZoomedOut
from ..session import anew, follow, on, sends
from ..state import State
from ..theme import colours

HEIGHT = 486  # pixels: with it the page fits in 800
TOOLS = {
    "zoom": "Zoom",
    "add": "Add",
    "remove": "Remove",
    "why": "Why",
}
HINTS = {
    "zoom": "Drag a box to zoom, down to tokens.",
    "add": "Drag a box to add its pairs.",
    "remove": "Drag a box to remove its pairs.",
    "why": "Drag a box around a pair to ask why.",
}


def render(state: State, layout: BlockLayout) -> None:
    """Draw the map of the shown pattern."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="map-tools"):
        tool_key = follow("tool", state.tool)
        st.segmented_control(
            "A box on the map does",
            list(TOOLS),
            default=state.tool,
            key=tool_key,
            format_func=TOOLS.__getitem__,
            on_change=on(tool_key, ToolChosen),
            required=True,
            label_visibility="collapsed",
        )
        st.button(
            "",
            help="Show the whole map",
            icon=":material/zoom_out_map:",
            key="whole",
            disabled=state.viewport is None,
            on_click=sends(ZoomedOut()),
        )
        if layout.groups > 1:
            _head(state, layout)
        else:
            st.html(f'<div class="ps-note">{HINTS[state.tool]}</div>')
    key = anew("map", (compute.key_of(state.shown, state.pattern), state.viewport, state.head, colours()))
    st.plotly_chart(
        compute.figure(state, HEIGHT, colours()),
        key=key,
        theme=None,
        on_select=on(key, lambda event: _boxed(layout, state.viewport, event.selection.box)),
        selection_mode="box",
        config={"displayModeBar": False, "doubleClick": False},
        alt=f"Tile map of {state.pattern}: query rows down, keys to the right",
    )


def _head(state: State, layout: BlockLayout) -> None:
    key = follow("head", state.head)
    st.selectbox(
        "Head",
        range(layout.problem.heads),
        state.head,
        key=key,
        format_func=lambda head: f"head {head}",
        on_change=on(key, HeadChosen),
        label_visibility="collapsed",
        width=120,
    )


def _boxed(layout: BlockLayout, viewport: Viewport | None, boxes: list[dict]) -> Boxed | None:
    if not boxes:  # an empty selection means that there is none
        return None
    return Boxed(snapped(layout, viewport, boxes[-1]["y"], boxes[-1]["x"]))


def snapped(layout: BlockLayout, viewport: Viewport | None, rows: list[float], keys: list[float]) -> Viewport:
    """The box in whole tiles, or where only a few tiles are in view, in whole cells of the map."""
    grid = grid_of(layout, viewport, 512, 512)
    row_start, row_stop = _snapped(grid.rows, layout.problem.q_len, rows)
    key_start, key_stop = _snapped(grid.keys, layout.problem.kv_len, keys)
    return Viewport(row_start, row_stop, key_start, key_stop)


def _snapped(axis: Axis, length: int, ends: list[float]) -> tuple[int, int]:
    few = axis.stop - axis.start < FEW_TILES * axis.block
    unit = axis.size if few else max(axis.size, axis.block)
    low, high = sorted(ends)
    start = min(max(round(low / unit), 0), (length - 1) // unit)
    stop = max(round(high / unit), start + 1)
    return start * unit, min(stop * unit, length)
