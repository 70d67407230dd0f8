"""The dense attention of one head by tile, and what of it lies where the pattern has nothing."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from numpy.typing import NDArray

from pattern_studio.plot.colours import ramp
from pattern_studio.plot.ticks import label, ticks
from pattern_studio.plot.tile_map import FONT

from .. import compute, numbers
from ..state import State
from ..theme import colours

HEIGHT = 570
STEPS = 100
POWER = 0.4  # attention is so uneven that a linear shade would show the sink and nothing else


def render(state: State, layer: int, head: int, mass: NDArray) -> None:
    """Draw the map: `mass` is the head's attention by cell, float [rows, keys]; each row adds up to 1.

    Raises:
        StudioError: the pattern does not fit the capture.
    """
    c = colours()
    capture = compute.capture()
    shape = compute.picture_block(state.shown.block, len(capture.tokens))
    kept = compute.active_cells(state, layer, head, shape)
    code = np.rint((STEPS - 1) * mass**POWER).astype(int) + np.where(kept, 0, STEPS)
    seen = np.arange(mass.shape[1]) * shape[1] < (np.arange(mass.shape[0])[:, None] + 1) * shape[0]
    seen |= not capture.causal
    shades = np.concatenate([ramp(STEPS, c.full_faint, c.full), ramp(STEPS, c.lost_faint, c.lost)]).tolist()
    scale = [[n / (2 * STEPS - 1), f"rgb({r},{g},{b})"] for n, (r, g, b) in enumerate(shades)]
    text = [
        [
            f"queries {r * shape[0]:,} to {(r + 1) * shape[0] - 1:,}<br>keys {k * shape[1]:,} to "
            f"{(k + 1) * shape[1] - 1:,}<br>{numbers.percent(float(mass[r, k]))} of these queries' attention<br>"
            f"{'the pattern reads here' if kept[r, k] else 'lost: the pattern has no pair here'}"
            for k in range(mass.shape[1])
        ]
        for r in range(mass.shape[0])
    ]
    rows, keys = (np.arange(n + 1) * size for n, size in zip(mass.shape, shape, strict=True))
    figure = go.Figure(
        go.Heatmap(
            z=np.where(seen, code.astype(float), np.nan),
            x=keys,
            y=rows,
            zmin=0,
            zmax=2 * STEPS - 1,
            colorscale=scale,
            showscale=False,
            text=text,
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
        )
    )
    lost = float(np.where(kept, 0, mass).sum() / mass.sum())
    axis = {"showgrid": False, "zeroline": False, "linecolor": c.line, "mirror": True, "constrain": "domain"}
    below = {"xref": "paper", "x": 0.5, "yref": "paper", "y": 0, "yanchor": "top", "showarrow": False}
    quiet = {"size": 13, "color": c.quiet}
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 66, "r": 14, "t": 12, "b": 78},
        paper_bgcolor=c.background,
        plot_bgcolor=c.background,
        font={"family": FONT, "size": 13, "color": c.ink},
        xaxis={**axis, "range": [0, keys[-1]], "fixedrange": True, **_ticks(int(keys[-1]))},
        yaxis={
            **axis,
            "range": [rows[-1], 0],
            **_ticks(int(rows[-1])),
            "scaleanchor": "x",
            "fixedrange": True,
            "title": {"text": "query row (token)", "standoff": 6, "font": quiet},
        },
        annotations=[
            {**below, "yshift": -26, "font": quiet, "text": f"key (token), cells of {shape[0]} x {shape[1]} tokens"},
            {
                **below,
                "yshift": -48,
                "font": quiet,
                "text": f"{_swatch(c.full)} attention in cells that the pattern reads\u2003"
                f"{_swatch(c.lost)} in cells without a pair: {numbers.percent(lost)} of all",
            },
        ],
    )
    st.plotly_chart(
        figure,
        theme=None,
        config={"displayModeBar": False},
        key=f"attention {layer} {head}",
        alt=f"Dense attention of layer {layer}, head {head} by tile, and where the pattern keeps it",
    )


def _swatch(colour: str) -> str:
    return f"<span style='font-size:17px;color:{colour}'>■</span>"


def _ticks(stop: int) -> dict[str, list]:
    at = ticks(0, stop)
    return {"tickvals": at, "ticktext": [label(position) for position in at]}
