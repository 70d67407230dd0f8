"""The gallery's small charts as SVG text: mass by distance, allowed pairs by distance, recall against density."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, FOOT = 360, 128, 20  # of a bar chart; FOOT is the room for distances


def mass_bars(bands: Sequence[dict[str, Any]], title: str) -> str:
    """Dense attention mass by distance, what the pattern keeps of it below, what it loses on top.

    >>> mass_bars([{"first": 0, "last": 0, "dense": 0.5, "kept": 0.4}], "Bars").count("<rect")
    2
    """
    top = max(band["dense"] for band in bands)
    bars = []
    for n, band in enumerate(bands):
        kept, lost = (band["kept"] / top, max(band["dense"] - band["kept"], 0) / top)
        words = f"{_distance(band)} tokens back: {_percent(band['dense'])} of the mass, {_percent(band['kept'])} kept"
        shapes = _bar(n, len(bands), 0, kept, "full", words) + _bar(n, len(bands), kept, lost, "lost", words)
        bars.append(shapes + _label(n, len(bands), kept + lost, _percent(band["dense"])))
    return _chart(bars, bands, title)


def allowed_bars(bands: Sequence[dict[str, Any]], title: str) -> str:
    """Share of the pairs at each distance that the pattern allows: of those behind where none ahead is allowed.

    >>> "50 %" in allowed_bars([{"first": 0, "last": 0, "past": 0.5}], "Bars")
    True
    """
    bars, causal = [], is_causal(bands)
    for n, band in enumerate(bands):
        share = band["past"] if causal else (band["past"] + band.get("ahead", band["past"])) / 2
        side = "back" if causal else "away"
        words = f"{_distance(band)} tokens {side}: {_percent(share)} of the pairs are allowed"
        bars.append(_bar(n, len(bands), 0, share, "part", words) + _label(n, len(bands), share, _percent(share)))
    return _chart(bars, bands, title)


def is_causal(bands: Sequence[dict[str, Any]]) -> bool:
    """Whether no pair ahead of the query is allowed.

    >>> is_causal([{"past": 1.0}, {"past": 0.5, "ahead": 0.0}])
    True
    """
    return not any(band.get("ahead") for band in bands)


def scatter(points: Sequence[tuple[str, str, bool, float, float]], title: str) -> str:
    """Recall (upwards) against density (to the right), both 0 to 1; points are (name, title, ours, density, recall).

    Each point is a link to `#name`. Labels stand where they overlap nothing, and are left out where that is nowhere.

    >>> 'href="#mistral"' in scatter([("mistral", "Mistral", False, 0.2, 0.4)], "Recall")
    True
    """
    left, bottom, wide, tall = 44, 330, 520, 310
    right = max(density for *_, density, _ in points) * 1.15
    place = {name: (left + wide * density / right, bottom - tall * recall) for name, _, _, density, recall in points}
    out = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - tall * share
        out.append(f'<path class="rule" d="M{left} {y:.1f}h{wide}"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * share:.0f} %</text>')
    for tenth in range(1, int(right * 10) + 1):
        x = left + wide * tenth / 10 / right
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10 * tenth} %</text>')
    out.append(
        f'<text x="{left + wide}" y="{bottom + 38}" text-anchor="end">kept pairs, of the causal triangle</text>'
        f'<text x="{left}" y="10">mass recall</text>'
    )
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in place.values()]
    for name, words, ours, density, recall in sorted(points, key=lambda point: -point[4]):
        x, y = place[name]
        label = _free_label(words, x, y, taken, left + wide + 30)
        about = f"{words}: {_percent(recall)} of the mass at {_percent(density)} of the pairs"
        colour = "ours" if ours else "dot"
        out.append(
            f'<a href="#{name}"><circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="5">'
            f"<title>{escape(about)}</title></circle>{label}</a>"
        )
    body = "\n".join(out)
    return f'<svg class="chart" viewBox="0 0 600 372" role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def _free_label(words: str, x: float, y: float, taken: list[tuple[float, ...]], most: float) -> str:
    """A label beside a point that overlaps no other and stays inside, which is then noted in `taken`."""
    long = 6.8 * len(words)  # of 12 px letters in the widest of the fonts
    spots = (
        ("start", x + 9, x + 9, y + 4),
        ("end", x - 9, x - 9 - long, y + 4),
        ("middle", x, x - long / 2, y - 10),
        ("middle", x, x - long / 2, y + 18),
    )
    for anchor, at, first, base in spots:
        box = (first, base - 10, first + long, base + 3)
        if box[0] > 44 and box[2] < most and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            return f'<text x="{at:.1f}" y="{base:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
    return ""


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _bar(n: int, count: int, low: float, share: float, colour: str, words: str) -> str:
    if share <= 0:
        return ""
    step, room = WIDTH / count, HEIGHT - FOOT - 16
    height = room * share
    y = HEIGHT - FOOT - room * low - height
    return (
        f'<rect class="{colour}" x="{n * step + 3:.1f}" y="{y:.1f}" width="{step - 6:.1f}" height="{height:.1f}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _label(n: int, count: int, share: float, words: str) -> str:
    x, y = (n + 0.5) * WIDTH / count, HEIGHT - FOOT - (HEIGHT - FOOT - 16) * share - 4
    return f'<text class="strong" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{words}</text>'


def _chart(bars: Sequence[str], bands: Sequence[dict[str, Any]], title: str) -> str:
    step = WIDTH / len(bands)
    feet = "".join(
        f'<text x="{(n + 0.5) * step:.1f}" y="{HEIGHT - 5}" text-anchor="middle">{_distance(band)}</text>'
        for n, band in enumerate(bands)
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'{"".join(bars)}<path class="rule" d="M0 {HEIGHT - FOOT}.5h{WIDTH}"/>{feet}</svg>'
    )


def _distance(band: dict[str, Any]) -> str:
    first, last = band["first"], band["last"]
    return f"{first}" if first == last else f"{first}\N{EN DASH}{last}"


def _percent(share: float) -> str:
    """Two significant digits, `0 %` and `100 %` only where they are exact to the digits shown.

    >>> _percent(0.123), _percent(0.00123), _percent(1.0), _percent(0.9999)
    ('12 %', '0.12 %', '100 %', '99.9 %')
    """
    shown = 100 * share
    if 99.5 <= shown < 100:
        shown = min(shown, 99.9)
        return f"{shown:.1f} %"
    return f"{shown:.0f} %" if shown >= 9.95 or shown == 0 else f"{shown:.2g} %"
