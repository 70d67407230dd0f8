"""The loss curves of a training run as SVG text."""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 60, 170, 50, 44
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}line{stroke:#ddd}path{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}line{stroke:#444}}"
)


def smoothed(losses: list[float], width: int) -> list[tuple[int, float]]:
    """(step, mean loss of the last `width` steps), at most about a hundred points.

    >>> smoothed([4.0, 2.0, 1.0], 2)
    [(0, 4.0), (1, 3.0), (2, 1.5)]
    """
    every = max(len(losses) // 100, 1)
    steps = [n for n in range(len(losses)) if n % every == 0 or n == len(losses) - 1]
    means = []
    for n in steps:
        part = losses[max(n - width + 1, 0) : n + 1]
        means.append((n, sum(part) / len(part)))
    return means


def named(found: dict[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """Each arm's curve, smoothed over a fiftieth of the run, by a name that says how it ended."""
    return {
        f"{arm}: {row['held_out_loss']:.3f} held out": smoothed(row["losses"], max(len(row["losses"]) // 50, 1))
        for arm, row in found["arms"].items()
    }


def title(found: dict[str, Any]) -> str:
    """What was run where and when."""
    size, on = found["size"], found["machine"]
    return f"Loss, nats a byte; context {size['context']:,}; {on['card'] or on['cpu']}, {on['date']}"


def curves(found: dict[str, Any]) -> str:
    """What `language_model.run` found as an SVG file: the loss of each arm against the step."""
    lines = named(found)
    last = max(points[-1][0] for points in lines.values()) or 1
    values = [y for points in lines.values() for _, y in points]
    low, high = int(min(values) * 2) / 2, (int(max(values) * 2) + 1) / 2

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / last
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / (high - low)

    parts = [f'<text x="{LEFT}" y="20" font-weight="600">{escape(title(found))}</text>']
    for half in range(round(2 * low), round(2 * high) + 1):
        y = place(0, half / 2)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{half / 2:g}</text>')
    for share in (0, 0.5, 1):
        at = place(share * last, low)[0]
        step = round(share * last)
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">step {step:,}</text>')
    ends = []
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        placed = [place(x, y) for x, y in points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path d="{path}" stroke="{colour}"/>')
        ends.append((placed[-1][1], name, colour))
    at = 0.0
    for y, name, colour in sorted(ends):  # as high as their lines end, never on each other
        at = max(y, at + 18)
        label = f'<text x="{WIDTH - RIGHT + 8}" y="{at + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'
        parts.append(label)
    about = escape(f"{title(found)}. {'; '.join(lines)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )
