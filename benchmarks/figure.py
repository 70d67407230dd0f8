"""A log-log line chart as an SVG file: a few lines, round ticks, names at the line ends, no dependency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 190, 56, 50
COLOURS = ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#E69F00")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}line{stroke:#ddd}path{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}line{stroke:#444}}"
)


def log_log(title: str, x_name: str, y_name: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """SVG of named lines of (x, y), both positive, with powers of ten marked on y and every x that occurs."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    ys = [y for points in lines.values() for _, y in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    span_x, span_y = math.log(xs[-1] / xs[0]) or 1, (high - low) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * math.log(x / xs[0]) / span_x
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(y) - low) / span_y

    parts = [f'<text x="{LEFT}" y="20" font-weight="600">{escape(title)}</text>']
    for power in range(low, high + 1):
        y = place(xs[0], 10**power)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**power:g}</text>')
    for x in xs:
        at = place(x, 10**low)[0]
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_short(x)}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_name)}</text>'
    )
    parts.append(f'<text x="10" y="{TOP - 14}">{escape(y_name)}</text>')
    names = []
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        placed = [place(x, y) for x, y in sorted(points)]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path d="{path}" stroke="{colour}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        names.append((placed[-1][1], name, colour))
    at = -math.inf
    for y, name, colour in sorted(names):  # in a column of their own, as high as their lines end, never on each other
        at = max(y, at + 18)
        x = WIDTH - RIGHT + 8
        parts.append(f'<text x="{x}" y="{at + 4:.1f}" style="fill:{colour}">{escape(name)}</text>')
    label = escape(f"{title}: {', '.join(lines)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _short(x: float) -> str:
    return f"{x / 2**20:g}M" if x >= 2**20 else f"{x / 1024:g}K" if x >= 1024 else f"{x:g}"
