"""What patterns keep against what they take: a picture of recall against density or cost, and the figures."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go
import streamlit as st

from pattern_studio import BlockLayout
from pattern_studio.metrics import LayoutStats, Report
from pattern_studio.plot.tile_map import FONT

from .. import compute, numbers
from ..events import Chosen
from ..session import follow, on
from ..state import State
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

AGAINST = {  # what a pattern takes -> the axis in words, and whether it is a cost
    "block density": ("block density on the capture", False),
    "token density": ("token density of all pairs, on the capture", False),
    "cost": ("forward pass of the problem", True),
}


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


def chooser(rows: list[Row], state: State) -> str:
    """What recall is drawn against, as the visitor chooses; and which patterns another one beats in it."""
    against = state.choice("against", "block density")
    key = follow("against", against)
    st.segmented_control(
        "Recall against",
        list(AGAINST),
        default=against,
        key=key,
        on_change=on(key, lambda chosen: Chosen("against", chosen)),
        required=True,
        label_visibility="collapsed",
    )
    points = _points(rows, against)
    best = front([(point.x, point.kept) for point in points])
    beaten = [point.letter for n, point in enumerate(points) if n not in best]
    if beaten:
        st.html(
            f'<div class="ps-note" role="status">{" and ".join(beaten)}: another pattern keeps no less for no more '
            f"{against}. The line joins those of which that can't be said.</div>"
        )
    return against


def chart(rows: list[Row], against: str) -> None:
    """Draw the picture."""
    points = _points(rows, against)
    st.plotly_chart(
        picture(points, against),
        theme=None,
        config={"displayModeBar": False},
        key=f"tradeoff {against}",  # Plotly would leave the old axis title under the new one
        alt=f"Recall against {against}: {', '.join(_words(point, against) for point in points)}",
    )


def _points(rows: list[Row], against: str) -> list[Point]:
    return [point for row in rows if (point := _point(row, against)) is not None]


@dataclass(frozen=True)
class Point:
    """A pattern in the picture: what it takes (per cent, or FLOP), its recall and its oracle's in per cent."""

    letter: str
    colour: str
    x: float
    kept: float
    best: float


def _point(row: Row, against: str) -> Point | None:
    letter, colour, layout, _, report = row
    density, recall, oracle = report.density, report.recall, report.oracle_recall
    if density is None or density.block is None or density.token is None or recall is None or oracle is None:
        return None  # nothing to measure in an empty capture
    x = {"block density": 100 * density.block, "token density": 100 * density.token}
    return Point(letter, colour, x.get(against, float(compute.forward_flops(layout))), 100 * recall.mean, 100 * oracle)


def front(points: list[tuple[float, float]]) -> list[int]:
    """Which points (what is taken, what is kept) no other beats, in order: beating is to take no more and keep no less,
    and one of the two strictly.

    >>> front([(10.0, 50.0), (20.0, 80.0), (20.0, 70.0), (30.0, 80.0)])
    [0, 1]
    """
    unbeaten = [
        n
        for n, (x, kept) in enumerate(points)
        if not any(a <= x and b >= kept and (a, b) != (x, kept) for a, b in points)
    ]
    return sorted(unbeaten, key=lambda n: points[n])


def _words(point: Point, against: str) -> str:
    taken = numbers.scaled(point.x, "FLOP") if AGAINST[against][1] else f"{point.x:.3g} %"
    return f"{point.letter} keeps {point.kept:.3g} % for {taken}"


def picture(points: list[Point], against: str) -> go.Figure:
    """Recall against what is taken; to each pattern the oracle, which chooses as many tiles with the answer known."""
    c, figure = colours(), go.Figure()
    best = [points[n] for n in front([(point.x, point.kept) for point in points])]
    figure.add_scatter(
        x=[point.x for point in best],
        y=[point.kept for point in best],
        mode="lines",
        line={"color": c.ink, "width": 1, "dash": "dot", "shape": "hv"},
        hoverinfo="skip",
    )
    for point in points:
        figure.add_scatter(
            x=[point.x, point.x],
            y=[point.kept, point.best],
            mode="lines",
            line={"color": c.line, "width": 2},
            hoverinfo="skip",
        )
        figure.add_scatter(
            x=[point.x],
            y=[point.best],
            mode="markers",
            marker={"color": c.oracle, "size": 9, "symbol": "diamond"},
            hovertemplate=f"best tiles for the budget of {point.letter}<br>%{{y:.3g}} % of the mass<extra></extra>",
        )
        figure.add_scatter(
            x=[point.x],
            y=[point.kept],
            mode="markers+text",
            text=[point.letter],
            textposition="bottom right",
            marker={"color": point.colour, "size": 13},
            hovertemplate=f"{_words(point, against)}<extra></extra>",
        )
    axis = {"gridcolor": c.line, "zeroline": False, "fixedrange": True, "rangemode": "tozero"}
    title, cost = AGAINST[against]
    figure.update_layout(
        height=178,
        margin={"l": 52, "r": 16, "t": 8, "b": 38},
        paper_bgcolor=c.background,
        font={"family": FONT, "size": 12, "color": c.ink},
        showlegend=False,
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis={
            **axis,
            "title": {"text": title, "font": {"color": c.quiet}},
            **({"ticksuffix": "FLOP", "exponentformat": "SI"} if cost else {"ticksuffix": " %"}),
        },
        yaxis={
            **axis,
            "range": [0, 104],
            "ticksuffix": " %",
            "title": {"text": "recall, mean", "font": {"color": c.quiet}},
        },
    )
    return figure
