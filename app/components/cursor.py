"""One cursor over all maps of a page: a place on one is marked on the others, and what each pattern has there is read.

Plotly has no cursor across figures, and a figure for all maps would lose the box on each. So a small script follows the
pointer; nothing is sent to the server. From the keyboard: the arrow keys, on the line that reads the place.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import numpy as np
from streamlit.components import v2

from pattern_studio.plot.density import DensityMap
from pattern_studio.plot.grid import Axis

from ..theme import colours

HINT = "Point at a map, or come here and press arrow keys: the same place is marked on all."
SCRIPT = Path(__file__).parents[1] / "static" / "cursor.js"

_cursor = v2.component(
    "studio_cursor",
    html=f'<div role="status" tabindex="0" aria-label="What the patterns have at one place">{HINT}</div>',
    css="div { font-size: 13px; line-height: 18px; height: 18px; overflow: hidden; white-space: nowrap; "
    "color: var(--st-text-color); font-family: var(--st-font); font-variant-numeric: tabular-nums; }",
    js=SCRIPT.read_text(),
)


def render(patterns: list[tuple[str, DensityMap]]) -> None:
    """Draw the line that reads the place; `patterns` are letters and what their maps show, all of one grid."""
    grid = patterns[0][1].grid
    _cursor(
        data={
            "maps": '[class*="st-key-map-"] .nsewdrag',
            "rows": _axis(grid.rows),
            "keys": _axis(grid.keys),
            "colour": colours().ink,
            "hint": HINT,
            "patterns": [{"letter": letter, "cells": cells(found)} for letter, found in patterns],
        },
        key="cursor",
        height=20,
    )


def cells(found: DensityMap) -> str:
    """The allowed share of each cell, a byte each (0 nothing, 255 all), row by row in base64.

    >>> import pattern_studio as ps
    >>> from pattern_studio.plot import density_map
    >>> list(__import__("base64").b64decode(cells(density_map(ps.lower(ps.causal, q_len=4, block=2), max_cells=2))))
    [191, 0, 255, 191]
    """
    share = found.mean
    bytes_ = np.where(share >= 1, 255, np.minimum(np.ceil(share * 254), 254)).astype(np.uint8)
    return b64encode(bytes_.tobytes()).decode()


def _axis(axis: Axis) -> dict[str, int]:
    return {"start": axis.start, "stop": axis.stop, "size": axis.size}
