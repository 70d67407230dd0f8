"""A report as one HTML file that needs no network: tables, and Plotly figures with Plotly's script inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StudioError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from .report import Report

POINTS = 256  # of a curve over rows: each the mean of a stretch
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}"
    "code{background:#f2f2f2;padding:.1em .3em}"
)
TITLES = {
    "minded_damage": "Minded damage by layer and head: lost mass, turned outputs, stirred stream (0 is best)",
    "weighted_damage": "Weighted damage by layer and head: lost mass and turned outputs, layers weighed (0 is best)",
    "damage": "Damage by layer and head: lost mass and turned outputs (0 is best)",
    "recall": "Mass recall by layer and head (1 is best)",
    "output_error": "Output error, relative L2, by layer and head (0 is best)",
    "regret": "Regret against the oracle of as many tiles, by layer and head (0 is best)",
}

UNBOUNDED = ("minded_damage", "output_error")


def to_html(report: Report) -> str:
    """The page: figures of what was measured, then the tables of `to_markdown`.

    Raises:
        StudioError: plotly is not installed.
    """
    pictures = _pictures(report)
    parts = [
        # Only the first carries the script, some 4 MB of it.
        figure.to_html(full_html=False, include_plotlyjs=at == 0, include_mathjax=False, config={"displaylogo": False})
        for at, figure in enumerate(pictures)
    ]
    title = f"Pattern Studio: {escape(report.pattern)}"
    return (
        f"<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>{title}</title><style>{STYLE}</style></head>"
        f"<body>\n{_tables(report.to_markdown(), parts)}\n</body></html>\n"
    )


def _pictures(report: Report) -> list[Figure]:
    try:
        from plotly import graph_objects as go
    except ImportError as error:
        raise StudioError(
            f"expected plotly for an HTML report, but it can't be imported ({error}); "
            'install the extra: pip install "pattern-studio[app]", or write Markdown or JSON'
        ) from error
    figures = []
    for key, title in TITLES.items():
        if key in report.figures:
            grid = [[_number(head.as_dict()[key]) for head in layer.heads] for layer in report.layers]
            width = max(map(len, grid))  # layers may differ in heads
            z = [line + [None] * (width - len(line)) for line in grid]
            names = [f"layer {layer.layer}" for layer in report.layers]
            picture = go.Heatmap(z=z, y=names, zmin=0, zmax=None if key in UNBOUNDED else 1, colorscale="Viridis")
            figures.append(_titled(go.Figure(picture), title, "head", "").update_yaxes(autorange="reversed"))
    if (distance := report.figures.get("distance")) is not None:
        names = [f"{band.first}-{band.last}" for band in distance.bands]
        bars = [
            go.Bar(name=key, x=names, y=[getattr(band, key) for band in distance.bands]) for key in ("dense", "kept")
        ]
        figures.append(_titled(go.Figure(bars), "Attention mass by distance", "tokens back", "share of the mass"))
    if all(layer.row_recall is not None for layer in report.layers):
        lines = []
        for layer in report.layers:
            mean = np.asarray(layer.row_recall).mean(0)
            stretches = np.array_split(np.arange(len(mean)), min(POINTS, len(mean)))
            y = [float(mean[part].mean()) for part in stretches]
            lines.append(go.Scatter(name=f"layer {layer.layer}", x=[int(part[0]) for part in stretches], y=y))
        figures.append(_titled(go.Figure(lines), "Mass recall along the text, mean over heads", "row", "recall"))
    return figures


def _titled(figure: Figure, title: str, x: str, y: str) -> Figure:
    return figure.update_layout(
        title=title, xaxis_title=x, yaxis_title=y, height=360, template="plotly_white", margin={"t": 50, "b": 40}
    )


def _number(value: Any) -> float | None:
    """The one number of a figure that a cell shows."""
    if isinstance(value, dict):
        value = value.get("mean", value.get("rel_l2"))
    return value


def _tables(markdown: str, pictures: Sequence[str]) -> str:
    """The report's own Markdown as HTML; pictures follow the introduction. Whatever a capture says is escaped."""
    heading, _, introduction, _, *lines = markdown.splitlines()
    out = [f"<h1><code>{escape(heading[3:-1])}</code></h1><p>{escape(introduction)}</p>", *pictures]
    cell = "th"
    for line in lines:
        if not line:
            out.append("</table>")
        elif line.startswith("|---"):
            cell = "td"
        else:
            if line in ("| figure | value |", lines[0]):
                out.append("<table>")
                cell = "th"
            # A bar in a token is written \| in Markdown.
            texts = [escape(text.replace("\0", "|")) for text in line.replace("\\|", "\0")[2:-2].split(" | ")]
            out.append(f"<tr>{''.join(f'<{cell}>{text}</{cell}>' for text in texts)}</tr>")
    return "\n".join([*out, "</table>"])
