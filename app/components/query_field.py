"""The receptive field of one query, layer by layer: which keys have reached it."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pattern_studio.plot.ticks import label, ticks
from pattern_studio.plot.tile_map import FONT

from ..reach import NEVER, Spread
from ..theme import colours
from .figures_panel import group
from .hops_map import shades

HEIGHT = 172
CELLS = 256


def render(found: Spread, query: int) -> None:
    """Draw a row for each depth, the keys to the right; the shade is that of the map."""
    where = f"query {query:,}"
    if found.block > 1:
        first = query // found.block * found.block
        where = f"queries {first:,} to {min(first + found.block, found.tokens) - 1:,}"
    group("What has reached it", where)
    c, row = colours(), found.row(query)
    size = -(-len(row) // CELLS)
    first = np.minimum.reduceat(row, np.arange(0, len(row), size))
    depths = np.arange(1, found.layers + 1)
    reached = first[None] <= depths[:, None]
    codes = np.where(reached, np.maximum(first, 1), 0)
    edges = np.minimum(np.arange(len(first) + 1) * size * found.block, found.tokens)
    scale = [c.background, *shades(found, c)]
    figure = go.Figure(
        go.Heatmap(
            z=codes,
            x=edges,
            y=np.arange(found.layers + 1) + 0.5,
            zmin=0,
            zmax=len(scale) - 1,
            colorscale=[[n / (len(scale) - 1), colour] for n, colour in enumerate(scale)],
            showscale=False,
            customdata=np.broadcast_to(
                np.where(first == NEVER, f"not within {found.layers} layers", first.astype(str)), codes.shape
            ),
            hovertemplate="around key %{x:,}<br>reaches the query after: %{customdata}<extra></extra>",
        )
    )
    at = ticks(0, found.tokens)
    axis = {"showgrid": False, "zeroline": False, "linecolor": c.line, "mirror": True, "fixedrange": True}
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 6, "b": 44},
        paper_bgcolor=c.background,
        plot_bgcolor=c.background,
        font={"family": FONT, "size": 12, "color": c.ink},
        xaxis={
            **axis,
            "range": [0, found.tokens],
            "tickvals": at,
            "ticktext": [label(position) for position in at],
            "title": {"text": "key (token)", "font": {"color": c.quiet}, "standoff": 8},
        },
        yaxis={
            **axis,
            "range": [found.layers + 0.5, 0.5],
            "dtick": max(1, found.layers // 8),
            "tick0": 1,
            "title": {"text": "layers", "font": {"color": c.quiet}},
        },
    )
    own = [int((first <= depth).sum()) for depth in (1, found.layers)]
    st.plotly_chart(
        figure,
        theme=None,
        config={"displayModeBar": False},
        key="query field",
        alt=f"Keys that reach query {query:,}, a row for each depth: {own[0]} of {len(first)} parts of the sequence "
        f"after one layer, {own[1]} after {found.layers}",
    )
