"""After how many layers each block of keys reaches each block of queries: one map, played layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from numpy.typing import NDArray

from pattern_studio.plot.colours import Colours, ramp
from pattern_studio.plot.ticks import label, ticks
from pattern_studio.plot.tile_map import FONT

from .. import numbers
from ..reach import NEVER, HopMap, Spread, hop_map
from ..theme import colours

HEIGHT = 480
CELLS = 128
STEP_MS = 600  # of the animation
AHEAD, UNREACHED = 0, 1  # codes of cells; from there on 2 and the layer of arrival


def render(found: Spread, depth: int) -> None:
    """Draw the map as it is after `depth` layers; playing it begins at layer 1 and ends there."""
    c, pooled = colours(), hop_map(found, CELLS)
    st.plotly_chart(
        figure(found, pooled, depth, c),
        theme=None,
        config={"displayModeBar": False},
        key="hops",
        alt=f"Map of queries and keys: the shade says after how many layers a key reaches a query. "
        f"{summary(found, depth)}. Queries down, keys to the right.",
    )


def summary(found: Spread, depth: int) -> str:
    """What has been reached after so many layers, in words."""
    of = "causal pairs" if found.figures.causal else "pairs"
    share = numbers.percent(found.figures.depths[depth - 1].coverage)
    return f"after {depth} layer{'' if depth == 1 else 's'}: {share} of {of}"


def figure(found: Spread, pooled: HopMap, depth: int, c: Colours) -> go.Figure:
    """The map with a frame for each layer up to `depth`; frames change colours only, so they weigh nothing."""
    edges = np.minimum(np.arange(len(pooled.first) + 1) * pooled.size, found.tokens)
    last = len(shades(found, c)) + 2
    codes = np.where(pooled.first == NEVER, UNREACHED, 2 + pooled.first.astype(int))
    if found.figures.causal:
        codes = np.where(np.triu(np.ones(codes.shape, bool), 1), AHEAD, codes)
    drawn = go.Heatmap(
        z=codes,
        x=edges,
        y=edges,
        zmin=0,
        zmax=last,
        colorscale=_scale(found, depth, c),
        showscale=False,
        customdata=np.stack([_words(pooled.first, found.layers), _words(pooled.last, found.layers)], -1),
        hovertemplate=_hover(pooled.size),
    )
    axis = {"showgrid": False, "zeroline": False, "linecolor": c.line, "mirror": True, "constrain": "domain"}
    at = ticks(0, found.tokens)
    axis |= {"tickvals": at, "ticktext": [label(position) for position in at], "fixedrange": True}
    made = go.Figure(drawn)
    made.update_layout(
        height=HEIGHT,
        margin={"l": 66, "r": 14, "t": 44, "b": 74},
        paper_bgcolor=c.background,
        plot_bgcolor=c.background,
        font={"family": FONT, "size": 13, "color": c.ink},
        xaxis={**axis, "range": [0, found.tokens]},
        yaxis={
            **axis,
            "range": [found.tokens, 0],
            "scaleanchor": "x",
            "title": {"text": "query row (token)", "standoff": 6, "font": {"size": 13, "color": c.quiet}},
        },
        annotations=_annotations(found, pooled, depth, c),
        updatemenus=[_buttons(depth, c)],
    )
    made.frames = [
        go.Frame(
            name=str(number),
            data=[go.Heatmap(colorscale=_scale(found, number, c))],
            traces=[0],
            layout={"annotations": _annotations(found, pooled, number, c)},
        )
        for number in range(1, depth + 1)
    ]
    return made


def shades(found: Spread, c: Colours) -> list[str]:
    """The colour of each layer of arrival up to the last, the first the strongest."""
    steps = max(found.last_arrival, 2)
    return [f"rgb({r},{g},{b})" for r, g, b in ramp(steps, c.full, c.partial, c.faint).tolist()]


def _scale(found: Spread, depth: int, c: Colours) -> list[list]:
    """The colour of every code after `depth` layers: what arrives later is not there yet."""
    of = shades(found, c)
    codes = [c.panel, c.background, of[0], *(colour if n < depth else c.background for n, colour in enumerate(of))]
    return [[n / (len(codes) - 1), colour] for n, colour in enumerate(codes)]


def _words(arrival: NDArray[np.uint8], layers: int) -> NDArray[np.str_]:
    told = np.array([str(n) if n <= layers else f"more than {layers}" for n in range(NEVER + 1)])
    return told[arrival]


def _hover(size: int) -> str:
    place = "query %{y:,}, key %{x:,}"
    if size == 1:
        return f"{place}<br>layers: %{{customdata[0]}}<extra></extra>"
    return (
        f"around {place}, {size:,} x {size:,} tokens<br>layers until the first pair: %{{customdata[0]}}"
        "<br>until all of them: %{customdata[1]}<extra></extra>"
    )


def _annotations(found: Spread, pooled: HopMap, depth: int, c: Colours) -> list[dict[str, Any]]:
    quiet = {"size": 13, "color": c.quiet}
    line = {"xref": "paper", "yref": "paper", "showarrow": False}
    below = {**line, "x": 0.5, "y": 0, "yanchor": "top", "font": quiet}
    return [
        {
            **line,
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "bottom",
            "yshift": 10,
            "text": f"<b>{summary(found, depth)}</b>",
            "font": {"size": 14, "color": c.ink},
        },
        {**below, "yshift": -24, "text": f"key (token), {_cell(found, pooled)}"},
        {**below, "yshift": -46, "text": _legend(found, c)},
    ]


def _cell(found: Spread, pooled: HopMap) -> str:
    if pooled.size == 1:
        return "one cell = one pair"
    size = f"one cell = {pooled.size:,} x {pooled.size:,} tokens"
    return size if pooled.size == found.block else f"{size}, by the first of its pairs that is reached"


def _legend(found: Spread, c: Colours) -> str:
    of, layers = shades(found, c), max(found.last_arrival, 1)
    shown = range(layers) if layers <= 6 else (0, layers // 3, 2 * layers // 3, layers - 1)
    swatches = [(of[n], f"{n + 1} layer{'' if n == 0 else 's'}" if n in (0, layers - 1) else f"{n + 1}") for n in shown]
    swatches.append(("", "not yet"))
    if found.figures.causal:
        swatches.append((c.line, "ahead"))
    return "\u2002".join(
        f"<span style='font-size:17px;color:{colour or c.quiet}'>{'■' if colour else '□'}</span> {text}"
        for colour, text in swatches
    )


def _buttons(depth: int, c: Colours) -> dict[str, Any]:
    steady = {"mode": "immediate", "transition": {"duration": 0}}
    frames = [str(number) for number in range(1, depth + 1)]
    return {
        "type": "buttons",
        "direction": "left",
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 8, "t": 0},
        "showactive": False,
        "bgcolor": c.panel,
        "bordercolor": c.line,
        "font": {"size": 13, "color": c.ink},
        "buttons": [
            {
                "label": "Play",
                "method": "animate",
                "args": [frames, {**steady, "frame": {"duration": STEP_MS, "redraw": True}}],
            },
            {
                "label": "Pause",
                "method": "animate",
                "args": [[None], {**steady, "frame": {"duration": 0, "redraw": False}}],
            },
        ],
    }
