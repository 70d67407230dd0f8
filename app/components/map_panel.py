"""The tile map, what a box on it does, and which head it shows."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio import BlockLayout
from pattern_studio.plot import Viewport
from pattern_studio.plot.grid import Axis, grid_of

from .. import compute
from ..events import Boxed, Drawn, Event, HeadChosen, ToolChosen, Zoomed, ZoomedOut
from ..map_view import unit
from ..session import anew, follow, on, sends
from ..state import State
from ..theme import colours
from . import tile_canvas

TOOLS = {
    "zoom": "Zoom",
    "add": "Add",
    "remove": "Remove",
    "why": "Why",
}
HINTS = {
    "zoom": "Wheel, or drag a box, down to tokens.",
    "add": "Click or drag to add; with Shift, draw freely.",
    "remove": "Click or drag to remove; with Shift, draw freely.",
    "why": "Click a pair to ask why.",
}
ENTER = {
    "zoom": "looks closer",
    "add": "adds the tile",
    "remove": "removes the tile",
    "why": "asks why the pair is allowed or not",
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
    view = compute.map_of(state, colours())
    alt = (
        f"Tile map of {str(state.pattern)[:200]}: query rows down, keys to the right. Arrow keys move, Enter "
        f"{ENTER[state.tool]}, + and - zoom, 0 shows the whole map."
    )
    key = anew("map", "one for all pictures: what is sent are tokens, whatever picture they were pointed at on")
    acted = on(key, lambda value: _event(value["acted"], layout))
    tile_canvas.render(key, {**view, "tool": state.tool, "alt": alt}, acted)
    st.html(
        f'<div class="ps-map-words"><div>{escape(view["caption"])}</div><div>'
        + "".join(f"<span>{_swatch(colour)} {escape(meaning)}</span>" for colour, meaning in view["legend"])
        + "</div></div>"
    )


def _swatch(colour: str) -> str:
    return f'<i style="background:{colour}" aria-hidden="true"></i>'


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


def _event(what: dict, layout: BlockLayout) -> Event | None:
    """What the visitor did on the map; None for what was meant for another problem, which came too late."""
    if what["kind"] == "whole":
        return ZoomedOut()
    problem = layout.problem
    if what["kind"] == "drawn":
        size = (what["size"][0], what["size"][1])
        units = frozenset((row, key) for row, key in what["units"])
        inside = all(0 <= row * size[0] < problem.q_len and 0 <= key * size[1] < problem.kv_len for row, key in units)
        return Drawn(units, size, what["tool"]) if units and inside else None
    (row_start, row_stop), (key_start, key_stop) = what["rows"], what["keys"]
    if not (0 <= row_start < row_stop <= problem.q_len and 0 <= key_start < key_stop <= problem.kv_len):
        return None
    box = Viewport(row_start, row_stop, key_start, key_stop)
    if what["kind"] == "box":
        return Boxed(box, what["tool"])
    return ZoomedOut() if (box.rows, box.keys) == (problem.q_len, problem.kv_len) else Zoomed(box)


def snapped(layout: BlockLayout, viewport: Viewport | None, rows: list[float], keys: list[float]) -> Viewport:
    """The box in whole tiles, or where only a few tiles are in view, in whole cells of the map."""
    grid = grid_of(layout, viewport, 512, 512)
    row_start, row_stop = _snapped(grid.rows, layout.problem.q_len, rows)
    key_start, key_stop = _snapped(grid.keys, layout.problem.kv_len, keys)
    return Viewport(row_start, row_stop, key_start, key_stop)


def _snapped(axis: Axis, length: int, ends: list[float]) -> tuple[int, int]:
    step = unit(axis)
    low, high = sorted(ends)
    start = min(max(round(low / step), 0), (length - 1) // step)
    stop = max(round(high / step), start + 1)
    return start * step, min(stop * step, length)
