"""A layout as SVG: text we write ourselves, so that papers can restyle it and no browser is needed."""

from __future__ import annotations

from html import escape

import numpy as np

from .colours import BACKGROUND, INK, LINE, QUIET
from .picture import LEFT, TOP, Picture
from .shade import EMPTY_CODE
from .ticks import label, ticks

FONT = "font-family=\"'Source Sans 3', 'Helvetica Neue', Arial, sans-serif\""


def svg(picture: Picture) -> str:
    """The whole picture: cells as rectangles, axes in tokens, caption and legend.

    >>> import pattern_studio as ps
    >>> from pattern_studio.plot.picture import picture
    >>> svg(picture(ps.lower(ps.causal, q_len=256, block=64))).splitlines()[0][:18]
    '<svg xmlns="http:/'
    """
    height, width = picture.size
    tall, wide = picture.pixels
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {FONT} font-size="14">',
        f"<title>Attention pattern: {escape(picture.caption)}</title>",
        f'<rect width="{width}" height="{height}" fill="{BACKGROUND}"/>',
        f'<g transform="translate({LEFT} {TOP})">',
        '<g shape-rendering="crispEdges">',
        *_cells(picture),
        "</g>",
        f'<rect width="{wide}" height="{tall}" fill="none" stroke="{LINE}"/>',
        *_axes(picture),
        *_legend(picture),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _cells(picture: Picture) -> list[str]:
    """One path per colour; equal neighbours along a row, then equal rows below them, share a rectangle."""
    codes = picture.codes
    shapes: dict[int, list[str]] = {}
    rows, keys = picture.cells.grid.rows.edges, picture.cells.grid.keys.edges
    x = [f"{picture.at('keys', edge):.7g}" for edge in keys.tolist()]
    y = [f"{picture.at('rows', edge):.7g}" for edge in rows.tolist()]
    open_runs: dict[tuple[int, int, int], int] = {}
    for row in range(len(codes) + 1):
        runs = set(_row_runs(codes[row])) if row < len(codes) else set()
        for run in [run for run in open_runs if run not in runs]:
            first, stop, code = run
            top = open_runs.pop(run)
            shapes.setdefault(code, []).append(f"M{x[first]} {y[top]}H{x[stop]}V{y[row]}H{x[first]}z")
        for run in sorted(runs):
            open_runs.setdefault(run, row)
    colour = ["#{:02X}{:02X}{:02X}".format(*rgb) for rgb in picture.colours.tolist()]
    return [f'<path fill="{colour[code]}" d="{"".join(paths)}"/>' for code, paths in sorted(shapes.items())]


def _row_runs(codes) -> list[tuple[int, int, int]]:
    """(first cell, stop cell, code) of equal neighbours, empty ones left out."""
    cuts = np.r_[0, np.flatnonzero(np.diff(codes)) + 1, len(codes)]
    runs = zip(cuts[:-1].tolist(), cuts[1:].tolist(), codes[cuts[:-1]].tolist(), strict=True)
    return [run for run in runs if run[2] != EMPTY_CODE]


def _axes(picture: Picture) -> list[str]:
    tall, wide = picture.pixels
    rows, keys = picture.cells.grid.rows, picture.cells.grid.keys
    out = []
    for at in ticks(keys.start, keys.stop):
        x = f"{picture.at('keys', at):.6g}"
        out.append(f'<path d="M{x} {tall}v5" stroke="{LINE}"/>')
        out.append(f'<text x="{x}" y="{tall + 20}" text-anchor="middle" fill="{INK}">{label(at)}</text>')
    for at in ticks(rows.start, rows.stop):
        y = picture.at("rows", at)
        out.append(f'<path d="M0 {y:.6g}h-5" stroke="{LINE}"/>')
        out.append(f'<text x="-9" y="{y + 5:.6g}" text-anchor="end" fill="{INK}">{label(at)}</text>')
    out.append(
        f'<text x="{wide / 2:.6g}" y="{tall + 42}" text-anchor="middle" fill="{QUIET}">{escape(picture.caption)}</text>'
    )
    out.append(
        f'<text transform="translate({14 - LEFT} {tall / 2:.6g}) rotate(-90)" text-anchor="middle" fill="{QUIET}">'
        "query row (token)</text>"
    )
    return out


def _legend(picture: Picture) -> list[str]:
    tall, out, x = picture.pixels[0], [], 0
    for colour, meaning in picture.legend:
        out.append(f'<rect x="{x}" y="{tall + 56}" width="12" height="12" fill="{colour}" stroke="{LINE}"/>')
        out.append(f'<text x="{x + 18}" y="{tall + 67}" fill="{QUIET}">{escape(meaning)}</text>')
        x += 44 + round(7.2 * len(meaning))  # an average letter of 14 px text is about 7 px wide
    return out
