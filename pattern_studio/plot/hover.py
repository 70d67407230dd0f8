"""What a pointer on the tile map is told: token ranges, and what the pattern has there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layout import BlockLayout
from .density import DensityMap, density_map
from .grid import Axis, Viewport

HOVER_CELLS = 48  # hover text is per tile, not per cell: a text for every cell would be megabytes
FEW_TILES = 4  # with fewer tiles in view than this, single tokens are what is looked at


def hover_layer(go: Any, layout: BlockLayout, head: int, cells: DensityMap) -> Any:
    """An invisible coarse layer that carries the hover texts: per tile where there are few, else per group."""
    rows, keys = cells.grid.rows, cells.grid.keys
    view = Viewport(rows.start, rows.stop, keys.start, keys.stop)
    coarse = density_map(layout, head, view, (_hover_cells(rows), _hover_cells(keys)))
    area, pairs, active = coarse.grid.area, coarse.pairs, coarse.active
    several = coarse.grid.level == "pooled"
    kind = np.where(active == 0, "empty", np.where(coarse.full == area, "full", "partial"))
    shape, offset = kind.shape, layout.problem.offset
    row_text = [_range("query row", a, b, offset) for a, b in _pairs(coarse.grid.rows.edges)]
    key_text = [_range("key", a, b, 0) for a, b in _pairs(coarse.grid.keys.edges)]
    text = np.empty(shape, object)
    for r in range(shape[0]):
        for k in range(shape[1]):
            what = f"{kind[r, k]} tile{'s' if several else ''}"
            if kind[r, k] == "partial":
                what += f"<br>{pairs[r, k]:,} of {area[r, k]:,} pairs allowed ({100 * pairs[r, k] / area[r, k]:.3g} %)"
            if area[r, k] == 1:
                what = f"{'allowed' if pairs[r, k] else 'not allowed'}, in {_article(str(kind[r, k]))} tile"
            text[r, k] = f"{row_text[r]}<br>{key_text[k]}<br>{what}"
    return go.Heatmap(
        z=np.zeros(shape, np.uint8),
        x=coarse.grid.keys.edges,
        y=coarse.grid.rows.edges,
        text=text,
        hovertemplate="%{text}<extra></extra>",
        opacity=0,
        showscale=False,
        name="hover",
    )


def _hover_cells(axis: Axis) -> int:
    """One per tile, unless there are too many of them, or so few that single tokens are in reach."""
    tiles = -(-axis.stop // axis.block) - axis.start // axis.block
    return tiles if FEW_TILES <= tiles <= HOVER_CELLS else HOVER_CELLS


def _pairs(edges: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _range(name: str, first: int, stop: int, offset: int) -> str:
    span = f"{name} {first:,}" if stop == first + 1 else f"{name}s {first:,} to {stop - 1:,}"
    if not offset:
        return span
    at = f"{first + offset:,}" if stop == first + 1 else f"{first + offset:,} to {stop - 1 + offset:,}"
    return f"{span} (position {at})"


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
