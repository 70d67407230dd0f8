"""How much faster than dense attention each arm is, against density, beside the line 1 / density."""

from __future__ import annotations

from html import escape
from itertools import groupby
from math import log10

import plotly.graph_objects as go
import streamlit as st

from pattern_studio.plot.colours import Colours
from pattern_studio.plot.ticks import label
from pattern_studio.plot.tile_map import FONT

from .. import numbers
from ..theme import colours
from ..timings import Measured

HEIGHT = 356
NAMES = {
    "ours": "our portable kernels",
    "hopper": "our Hopper kernels",
    "hopper_deterministic": "our Hopper kernels, deterministic",
    "flex": "FlexAttention, compiled",
    "fa4": "FlashAttention-4, block-sparse",
    "cudnn_bsa": "cuDNN, block-sparse",
    "fa4_dense": "FlashAttention-4, dense",
    "sdpa_cudnn": "cuDNN, dense",
    "sdpa_flash": "FlashAttention-2, dense",
}
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "hexagon")
ROUND = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
SPEEDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)

Star = tuple[str, float, float, float]  # "predicted" or "measured", density, speed-up, and its relative error


def name_of(arm: str) -> str:
    """An arm in words; one that is not of this project by the name that its file gives it."""
    return NAMES.get(arm, arm)


def render(cells: list[Measured], stars: list[Star]) -> None:
    """Draw the cells that can be set beside dense attention, and the pattern that is shown as stars."""
    drawn = [one for one in cells if one.speed_up is not None and not one.is_dense]
    st.plotly_chart(
        figure(drawn, stars, colours()),
        theme=None,
        config={"displayModeBar": False},
        key="speed-up",
        alt=in_words(drawn),
    )


def in_words(drawn: list[Measured]) -> str:
    """What the picture shows, for those who do not see it."""
    said = []
    for arm, found in _by_arm(drawn):
        best = max(found, key=lambda one: one.speed_up or 0)
        said.append(
            f"{name_of(arm)}: {len(found)} cells, at most {best.speed_up:.3g} times as fast as dense, at block density "
            f"{numbers.percent(best.row.density)}"
        )
    return f"Speed-up over dense attention against block density. {'; '.join(said) or 'Nothing to draw'}."


def figure(drawn: list[Measured], stars: list[Star], c: Colours) -> go.Figure:
    """The picture, both axes logarithmic."""
    made = go.Figure()
    inks = (c.full, c.only_a, c.only_b, c.oracle, c.lost)
    left = min([0.01, *(one.row.density for one in drawn), *(star[1] for star in stars)]) * 0.8
    made.add_scatter(
        x=[left, 1],
        y=[1 / left, 1],
        mode="lines",
        name="1 / density",
        line={"color": c.quiet, "width": 1.5, "dash": "dash"},
        hovertemplate="1 / density: what it would be if time followed density alone<extra></extra>",
    )
    longest = max((one.row.tokens for one in drawn), default=0)
    several = len({one.row.tokens for one in drawn}) > 1
    for n, (arm, found) in reversed(list(enumerate(_by_arm(drawn)))):  # the first on top of the others
        colour, symbol = inks[n % len(inks)], SYMBOLS[n % len(SYMBOLS)]  # 5 and 7: no two of 35 arms look alike
        for tokens, cells in groupby(sorted(found, key=lambda one: -one.row.tokens), key=lambda one: one.row.tokens):
            of = list(cells)
            made.add_scatter(
                x=[one.row.density for one in of],
                y=[one.speed_up for one in of],
                mode="markers",
                name=escape(name_of(arm)) + (f", {label(tokens)}" if several else ""),
                marker={
                    "color": colour,
                    "size": 9 if n == 0 else 12,
                    "symbol": symbol if tokens == longest else f"{symbol}-open",
                    "line": {"color": c.background if tokens == longest else colour, "width": 1},
                },
                text=[_told(one) for one in of],
                hovertemplate="%{text}<extra></extra>",
            )
    for kind, density, speed, error in stars:
        made.add_scatter(
            x=[density],
            y=[speed],
            mode="markers",
            name=f"this pattern, {kind}",
            marker={"color": c.ink, "size": 15, "symbol": "star" if kind == "measured" else "star-open"},
            error_y={"type": "data", "array": [speed * error], "color": c.ink, "thickness": 1} if error else None,
            hovertemplate=f"this pattern, {kind}: {speed:.3g} times as fast as dense<extra></extra>",
        )
    speeds = [*(one.speed_up or 1 for one in drawn), *(star[2] for star in stars), 1]
    axis = {"type": "log", "gridcolor": c.line, "zeroline": False, "fixedrange": True, "tickfont": {"color": c.quiet}}
    quiet = {"size": 13, "color": c.quiet}
    made.update_layout(
        height=HEIGHT,
        margin={"l": 58, "r": 10, "t": 8, "b": 88},
        paper_bgcolor=c.background,
        plot_bgcolor=c.background,
        font={"family": FONT, "size": 13, "color": c.ink},
        legend={"orientation": "h", "x": 0, "y": -0.19, "yanchor": "top", "traceorder": "reversed"},
        xaxis={
            **axis,
            "range": [log10(left), log10(1.15)],
            "tickvals": ROUND,
            "ticktext": [f"{100 * at:g} %" for at in ROUND],
            "title": {"text": "block density", "font": quiet, "standoff": 6},
        },
        yaxis={
            **axis,
            "range": [log10(min(speeds) * 0.8), log10(max(*speeds, 2) * 2)],
            "tickvals": SPEEDS,
            "ticktext": [f"{at:g}x" for at in SPEEDS],
            "title": {"text": "times as fast as dense", "font": quiet, "standoff": 8},
        },
    )
    made.add_hline(1, line={"color": c.line, "width": 1.5})
    return made


def _by_arm(drawn: list[Measured]) -> list[tuple[str, list[Measured]]]:
    there = {one.row.arm for one in drawn}
    order = [*(arm for arm in NAMES if arm in there), *sorted(there - NAMES.keys())]
    return [(arm, [one for one in drawn if one.row.arm == arm]) for arm in order]


def _told(one: Measured) -> str:
    row, dense = one.row, one.dense
    assert dense is not None  # only such cells are drawn
    return (
        f"{escape(name_of(row.arm))} on {escape(row.pattern[:60])}<br>{row.tokens:,} tokens, {row.heads} heads, "
        f"D {row.dim}, block {row.block[0]} x {row.block[1]}<br>measured: {one.ms:.3g} ms, {one.tflops:.3g} TFLOP/s, "
        f"{escape(row.date)}<br>{one.speed_up:.3g} times as fast as {escape(name_of(dense[0]))} ({dense[1]:.3g} ms)"
    )
