"""Recall of every layer and head at a glance, and the chosen head's figures."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pattern_studio.metrics import Report
from pattern_studio.plot.colours import ramp
from pattern_studio.plot.tile_map import FONT

from .. import numbers
from ..theme import colours
from . import figures_panel

ROWS, COLUMNS = 4, 12  # of a table that has room for its numbers; larger ones say them on hover


def render(report: Report, layer: int, head: int) -> None:
    """Draw the table and the figures."""
    c = colours()
    figures_panel.group("Mean recall by layer and head", first=True)
    table = np.full((len(report.layers), max(len(part.heads) for part in report.layers)), np.nan)  # NaN: no such head
    for line, part in zip(table, report.layers, strict=True):
        line[: len(part.heads)] = [one.recall.mean if one.recall else np.nan for one in part.heads]
    roomy = table.shape[0] <= ROWS and table.shape[1] <= COLUMNS
    names = [f"layer {part.layer}" for part in report.layers]
    row = next(n for n, part in enumerate(report.layers) if part.layer == layer)
    figure = go.Figure(
        go.Heatmap(
            z=table,
            x=[f"head {n}" for n in range(table.shape[1])],
            y=names,
            zmin=0,
            zmax=1,
            colorscale=_scale(),
            showscale=False,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            text=[["" if value != value else numbers.percent(value) for value in values] for values in table.tolist()],
            texttemplate="%{text}" if roomy else None,
            hovertemplate="%{y}, %{x}: %{text} of the mass kept<extra></extra>",
        )
    )
    figure.add_shape(
        type="rect", x0=head - 0.5, x1=head + 0.5, y0=row - 0.5, y1=row + 0.5, line={"color": c.ink, "width": 2}
    )
    figure.update_layout(
        height=40 + round(min(38, ROWS * 38 / len(names)) * len(names)),
        margin={"l": 58, "r": 4, "t": 4, "b": 26},
        paper_bgcolor=c.background,
        plot_bgcolor=c.background,
        font={"family": FONT, "size": 12, "color": c.ink},
        yaxis={"autorange": "reversed", "fixedrange": True, "ticks": ""},
        xaxis={"fixedrange": True, "ticks": ""},
    )
    st.plotly_chart(
        figure,
        theme=None,
        config={"displayModeBar": False},
        key="head table",
        alt="Mean recall of every head: a table with a row for each layer",
    )
    part = report.layers[row]
    figures_panel.group(f"Layer {layer}, head {head}")
    figures_panel.quality(part.heads[head])


def _scale() -> list[list]:
    shades = ramp(11, colours().masked, colours().full).tolist()
    return [[n / 10, f"rgb({r},{g},{b})"] for n, (r, g, b) in enumerate(shades)]
