"""What patterns keep against what they cost: a picture of recall against block density, and the figures."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st

from pattern_studio import BlockLayout
from pattern_studio.metrics import LayoutStats, Report
from pattern_studio.plot.tile_map import FONT

from .. import compute, numbers
from ..theme import colours

Row = tuple[str, str, BlockLayout, LayoutStats, Report]  # letter, colour, and what is known of a pattern
COLUMNS = (
    ("", "Which pattern."),
    ("token density, causal", "Allowed pairs / pairs of the causal triangle."),
    ("block density", "Active tiles / tiles."),
    ("forward pass", "Floating-point operations in active tiles, all heads."),
    ("recall, mean", "Share of dense attention's probability that is kept, on the capture."),
    ("recall, p1", "One row in a hundred keeps less."),
    ("output error", "|o - o_pattern| / |o|."),
    ("regret", "What the best choice of as many tiles would keep more."),
)


def table(rows: list[Row]) -> None:
    """The figures, a line for each pattern."""
    head = "".join(f'<th title="{escape(about)}">{escape(name)}</th>' for name, about in COLUMNS)
    body = ""
    for letter, colour, layout, stats, report in rows:
        cells = "".join(f"<td>{value}</td>" for value in _figures(layout, stats, report))
        body += f'<tr><td><b style="color:{colour}">{letter}</b></td>{cells}</tr>'
    st.html(f'<table class="ps-rows ps-figures"><tr>{head}</tr>{body}</table>')


def _figures(layout: BlockLayout, stats: LayoutStats, report: Report) -> list[str]:
    recall, error = report.recall, report.output_error
    assert recall is not None  # compute.QUALITY asks for both
    assert error is not None
    return [
        numbers.percent(stats.density.token_of_causal),
        numbers.percent(stats.density.block),
        numbers.scaled(compute.forward_flops(layout), "FLOP"),
        numbers.percent(recall.mean),
        numbers.percent(recall.p1),
        numbers.fraction(error.rel_l2),
        numbers.percent(report.regret),
    ]


def picture(rows: list[Row]) -> None:
    """Recall against block density; to each pattern the oracle, which chooses as many tiles with the answer known."""
    c, figure = colours(), go.Figure()
    for letter, colour, _, _, report in rows:
        density, recall, oracle = report.density, report.recall, report.oracle_recall
        if density is None or density.block is None or recall is None or oracle is None:
            continue  # nothing to measure in an empty capture
        x, kept, best = 100 * density.block, 100 * recall.mean, 100 * oracle
        figure.add_scatter(x=[x, x], y=[kept, best], mode="lines", line={"color": c.line, "width": 2}, hoverinfo="skip")
        figure.add_scatter(
            x=[x],
            y=[best],
            mode="markers",
            marker={"color": c.oracle, "size": 9, "symbol": "diamond"},
            hovertemplate=f"best tiles for the budget of {letter}<br>%{{y:.3g}} % of the mass<extra></extra>",
        )
        figure.add_scatter(
            x=[x],
            y=[kept],
            mode="markers+text",
            text=[letter],
            textposition="middle right",
            marker={"color": colour, "size": 13},
            hovertemplate=f"{letter}<br>%{{x:.3g}} % of tiles<br>%{{y:.3g}} % of the mass<extra></extra>",
        )
    axis = {"gridcolor": c.line, "zeroline": False, "fixedrange": True, "ticksuffix": " %", "rangemode": "tozero"}
    figure.update_layout(
        height=178,
        margin={"l": 52, "r": 10, "t": 8, "b": 38},
        paper_bgcolor=c.background,
        font={"family": FONT, "size": 12, "color": c.ink},
        showlegend=False,
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis={**axis, "title": {"text": "block density on the capture", "font": {"color": c.quiet}}},
        yaxis={**axis, "range": [0, 104], "title": {"text": "recall, mean", "font": {"color": c.quiet}}},
    )
    st.plotly_chart(
        figure, theme=None, config={"displayModeBar": False}, key="tradeoff", alt="Recall against block density"
    )
