"""How the receptive field grows with depth: of all queries on average, and of a chosen one."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pattern_studio.plot.tile_map import FONT

from .. import numbers
from ..reach import Spread
from ..theme import colours
from .figures_panel import group

HEIGHT = 176


def figures(found: Spread, depth: int) -> None:
    """The figures of a depth, with what they mean on hover."""
    told, here = found.figures, found.figures.depths[depth - 1]
    relation = "pairs with key <= query" if told.causal else "pairs"
    rows = (
        (
            "Layers to reach all",
            f"more than {found.layers}" if told.hops is None else f"{told.hops}",
            f"Hops: the first depth at which every query is reached by all tokens that it may see ({relation}).",
        ),
        (
            f"Reached after {depth}",
            numbers.percent(here.coverage),
            f"Coverage: {relation} of which the key reaches the query / all such {relation}, after this many layers.",
        ),
        (
            "Tokens, mean",
            numbers.count(round(here.mean_tokens)),
            "How many tokens reach a query after this many layers, itself counted: its receptive field, averaged.",
        ),
        ("Tokens, min", numbers.count(here.min_tokens), "The smallest receptive field of any query."),
    )
    for column, (name, value, text) in zip(st.columns([28, 26, 23, 23], gap="small"), rows, strict=True):
        column.metric(name, value, help=text)


def render(found: Spread, depth: int, query: int) -> None:
    """Draw the curves."""
    group("Receptive field by depth", "share of what a query may see")
    c, layers = colours(), np.arange(1, found.layers + 1)
    shares = 100 * np.array([one.coverage for one in found.figures.depths])
    tokens = [numbers.count(round(one.mean_tokens)) for one in found.figures.depths]
    own, most = query_tokens(found, query)
    figure = go.Figure()
    figure.add_scatter(
        x=layers,
        y=100 * own / most,
        mode="lines+markers",
        name=f"query {query:,}",
        line={"color": c.only_a, "width": 2, "dash": "dot"},
        marker={"size": 7, "symbol": "diamond"},
        customdata=[numbers.count(int(one)) for one in own],
        hovertemplate=f"query {query:,} after %{{x}}: %{{y:.3g}} %, %{{customdata}} tokens<extra></extra>",
    )
    figure.add_scatter(
        x=layers,
        y=shares,
        mode="lines+markers",
        name="all queries",
        line={"color": c.full, "width": 2},
        marker={"size": 7},
        customdata=tokens,
        hovertemplate="all queries after %{x}: %{y:.3g} %, %{customdata} tokens on average<extra></extra>",
    )
    figure.add_vline(depth, line={"color": c.quiet, "width": 1, "dash": "dash"})
    axis = {"gridcolor": c.line, "zeroline": False, "fixedrange": True, "tickfont": {"color": c.quiet}}
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 24, "b": 36},
        paper_bgcolor=c.background,
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": c.ink},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "reversed"},
        yaxis={**axis, "range": [0, 104], "ticksuffix": " %"},
        xaxis={
            **axis,
            "range": [0.5, found.layers + 0.5],
            "showgrid": False,
            "tickformat": "d",
            "dtick": max(1, found.layers // 16),
            "tick0": 1,
            "title": {"text": "layers", "font": {"color": c.quiet}, "standoff": 4},
        },
    )
    st.plotly_chart(
        figure,
        theme=None,
        config={"displayModeBar": False},
        key="reach growth",
        alt=f"Share of tokens that reach a query, by layer: of all queries {shares[0]:.3g} % after the first layer, "
        f"{shares[-1]:.3g} % after {found.layers}; of query {query:,} {100 * own[-1] / most:.3g} %",
    )


def query_tokens(found: Spread, query: int) -> tuple[np.ndarray, int]:
    """Tokens that reach a query after each layer, int64 [layers], and how many could."""
    width = np.minimum(found.block, found.tokens - np.arange(len(found.arrival)) * found.block)
    row = found.row(query)
    own = np.array([int(width[row <= number].sum()) for number in range(1, found.layers + 1)])
    return own, int(width[: query // found.block + 1].sum()) if found.figures.causal else found.tokens


def table(found: Spread) -> None:
    """The same as text, layer by layer."""
    lines, before = "", 0.0
    for one in found.figures.depths:
        lines += (
            f"<tr><td>{one.layers}</td><td>{numbers.percent(one.coverage)}</td>"
            f"<td>{numbers.percent(one.coverage - before)}</td><td>{numbers.count(round(one.mean_tokens))}</td>"
            f"<td>{numbers.count(one.min_tokens)}</td></tr>"
        )
        before = one.coverage
    names = ("layers", "reached", "reached by the last of them", "tokens, mean", "tokens, min")
    head = "".join(f"<th>{name}</th>" for name in names)
    st.html(f'<table class="ps-rows ps-figures"><tr>{head}</tr>{lines}</table>')
