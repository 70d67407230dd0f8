"""A map that stands beside others: small, without words around it, and looking where they look."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

from pattern_studio import BlockLayout
from pattern_studio.plot import Viewport
from pattern_studio.plot.grid import grid_of
from pattern_studio.plot.ticks import label, ticks
from pattern_studio.plot.tile_map import FONT

from ..events import Zoomed
from ..session import anew, on
from ..theme import colours
from .map_panel import snapped

HEIGHT = 262


def render(name: str, drawn: go.Heatmap, layout: BlockLayout, viewport: Viewport | None, content: object) -> None:
    """Draw a heatmap over a layout's tokens; a box on it zooms all maps of the page. `content` identifies it."""
    c = colours()
    grid = grid_of(layout, viewport, 128, 128)
    rows, keys = (grid.rows.start, grid.rows.stop), (grid.keys.start, grid.keys.stop)
    axis = {"showgrid": False, "zeroline": False, "linecolor": c.line, "mirror": True, "constrain": "domain"}
    picture = go.Figure(drawn)
    picture.update_layout(
        height=HEIGHT,
        margin={"l": 44, "r": 6, "t": 10, "b": 22},
        paper_bgcolor=c.background,
        plot_bgcolor=c.background,
        font={"family": FONT, "size": 12, "color": c.ink},
        dragmode="select",
        newselection={"line": {"color": c.ink, "width": 1, "dash": "solid"}},
        xaxis={**axis, "range": keys, **_ticks(*keys)},
        yaxis={**axis, "range": rows[::-1], **_ticks(*rows)},
    )
    if 0.25 <= (rows[1] - rows[0]) / (keys[1] - keys[0]) <= 4:
        picture.update_yaxes(scaleanchor="x", scaleratio=1)
    key = anew(f"map {name}", (content, viewport, c))
    st.plotly_chart(
        picture,
        key=key,
        theme=None,
        on_select=on(key, lambda event: _boxed(layout, viewport, event.selection.box)),
        selection_mode="box",
        config={"displayModeBar": False, "doubleClick": False},
        alt=f"Tile map of {name}: query rows down, keys to the right",
    )


def _boxed(layout: BlockLayout, viewport: Viewport | None, boxes: list[dict]) -> Zoomed | None:
    return Zoomed(snapped(layout, viewport, boxes[-1]["y"], boxes[-1]["x"])) if boxes else None


def _ticks(start: int, stop: int) -> dict[str, list]:
    at = ticks(start, stop)[::2]
    return {"tickvals": at, "ticktext": [label(position) for position in at]}
