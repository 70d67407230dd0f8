"""Recall along the text: the curve of one head, and the rows that lose most with their words."""

from __future__ import annotations

from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pattern_studio.metrics import LayerReport
from pattern_studio.plot.tile_map import FONT

from .. import compute, numbers
from ..theme import colours
from . import figures_panel

BEFORE, AFTER = 9, 2  # tokens shown around a row


def render(layer: LayerReport, head: int, key: str = "row recall") -> None:
    """Draw the curve and the worst rows of one head."""
    c = colours()
    figures_panel.group("Recall of each query row")
    rows = np.asarray(layer.row_recall)[head]
    figure = go.Figure(
        go.Scatter(
            x=np.arange(len(rows)),
            y=rows,
            mode="lines",
            line={"color": c.full, "width": 1},
            hovertemplate="query row %{x}: %{y:.3g} of its mass kept<extra></extra>",
        )
    )
    axis = {
        "showgrid": True,
        "gridcolor": c.line,
        "zeroline": False,
        "tickfont": {"color": c.quiet},
        "fixedrange": True,
    }
    figure.update_layout(
        height=130,
        margin={"l": 38, "r": 4, "t": 4, "b": 24},
        paper_bgcolor=c.background,
        font={"family": FONT, "size": 12, "color": c.ink},
        plot_bgcolor="rgba(0,0,0,0)",
        yaxis={**axis, "range": [0, 1.02], "tickvals": [0, 0.5, 1]},
        xaxis={**axis, "range": [0, len(rows)], "showgrid": False},
    )
    st.plotly_chart(figure, theme=None, config={"displayModeBar": False}, key=key, alt="Recall of every query row")
    figures_panel.group("Rows that lose most")
    tokens = compute.capture().tokens
    worst_rows = layer.heads[head].figures["worst_rows"]
    lines = [
        f"<tr><td>{worst.row:,}</td><td>{numbers.percent(worst.recall)}</td><td>{_context(tokens, worst.row)}</td></tr>"
        for worst in worst_rows
    ]
    st.html(f'<table class="ps-rows"><tr><th>query row</th><th>kept</th><th>text</th></tr>{"".join(lines)}</table>')


def _context(tokens: tuple[str, ...], row: int) -> str:
    before = "".join(tokens[max(0, row - BEFORE) : row])
    after = "".join(tokens[row + 1 : row + 1 + AFTER])
    return f"{escape(before)}<mark>{escape(tokens[row])}</mark>{escape(after)}".replace("\n", " ")
