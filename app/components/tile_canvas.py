"""The tile map on a canvas of our own: Plotly takes 4.7 MB and has no clicks on a heatmap, and no painting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from . import theme_watch

HEIGHT = 434  # pixels, without the words below: with them the page fits in 800

_HTML = (
    '<div class="frame"><canvas tabindex="0" role="application"></canvas>'
    '<div class="tip" hidden></div><div class="live" aria-live="polite"></div></div>'
)
_CSS = f"""
.frame {{ position: relative; }}
canvas {{ width: 100%; height: {HEIGHT}px; display: block; touch-action: none; cursor: crosshair;
  font-family: var(--st-font); border-radius: 4px; outline: none; }}
canvas:focus-visible {{ box-shadow: inset 0 0 0 2px var(--ps-accent); }}
.tip {{ position: absolute; z-index: 10; pointer-events: none; padding: 5px 9px; max-width: 330px;
  background: var(--ps-background); color: var(--ps-ink); border: 1px solid var(--ps-line); border-radius: 4px;
  font: 13px/18px var(--st-font); font-variant-numeric: tabular-nums; box-shadow: 0 2px 8px rgb(0 0 0 / 14%); }}
.tip[hidden] {{ display: none; }}
.live {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }}
"""
_canvas = component(
    "pattern_studio_tile_map",
    html=_HTML,
    css=_CSS,
    js=theme_watch.JS + (Path(__file__).parents[1] / "static" / "tile_map.js").read_text(encoding="utf-8"),
)


def render(key: str, data: dict[str, Any], acted: Callable[[], None]) -> None:
    """Draw `data`, what `map_view` gives with `tool` and `alt`; `acted` is called with the key's value {"acted": ...}.

    What a visitor did has a `kind`: "box" with rows and keys (a dragged box, or a click's tile), "drawn" with units
    (row, key) painted freehand, "view" with rows and keys to look at, or "whole".

    It watches the theme, too: a component more for that alone would take a tenth of a second of the first visit.
    """
    _canvas(key=key, data=data, height=HEIGHT, on_acted_change=acted, on_themed_change=theme_watch.drawn_anew)
