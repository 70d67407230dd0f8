"""Recall of every layer and head at a glance, and the chosen head's figures."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pattern_studio.metrics import Report
from pattern_studio.plot.colours import ramp, rgb
from pattern_studio.plot.tile_map import FONT

from .. import numbers
from ..theme import colours
from . import figures_panel

STEPS = 20  # of the shade
ROWS, COLUMNS = 4, 12  # of a table that has room for its numbers; larger ones say them on hover


def render(report: Report, layer: int, head: int, key: str = "head table") -> None:
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
            customdata=[["" if v != v else numbers.percent(v) for v in values] for values in table.tolist()],
            hovertemplate="%{y}, %{x}: %{customdata} of the mass kept<extra></extra>",
        )
    )
    for at in np.argwhere(table == table) if roomy else ():
        figure.add_annotation(_words(float(table[tuple(at)])) | {"x": int(at[1]), "y": int(at[0])})
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
        key=key,
        alt="Mean recall of every head: a table with a row for each layer",
    )
    part = report.layers[row]
    figures_panel.group(f"Layer {layer}, head {head}")
    figures_panel.quality(part.heads[head], columns=4)


def _scale() -> list[list]:
    return [[n / STEPS, f"rgb({r},{g},{b})"] for n, (r, g, b) in enumerate(_shades())]


def _shades() -> list[list[int]]:
    return ramp(STEPS + 1, colours().masked, colours().full).tolist()


def _words(value: float) -> dict:
    """The number, in whichever of ink and ground can be read better on its cell."""
    c, cell = colours(), _luminance(*_shades()[round(STEPS * value)])
    ink = max((c.ink, c.background), key=lambda colour: _contrast(_luminance(*rgb(colour)), cell))
    return {"text": numbers.percent(value), "showarrow": False, "font": {"color": ink}}


def _luminance(*channels: int) -> float:
    """WCAG's relative luminance of an sRGB colour."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (n / 255 for n in channels)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)
