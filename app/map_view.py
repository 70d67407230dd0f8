"""What the tile map draws: one head's cells as a picture, and what a pointer on them is told. No widgets."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

from pattern_studio import BlockLayout, Pattern
from pattern_studio.plot import Viewport, density_map
from pattern_studio.plot.colours import Colours
from pattern_studio.plot.grid import Axis, Grid
from pattern_studio.plot.hover import FEW_TILES
from pattern_studio.plot.png import encode
from pattern_studio.plot.shade import caption, legend, palette, shades
from pattern_studio.plot.ticks import label, ticks

from .reasons import reasons

CELLS = 512  # along an axis: more than the map has pixels
TOLD = 48  # cells along an axis that have words of their own
RULED = 64  # with more tiles along an axis than this, lines between them would hide the map


def map_view(
    layout: BlockLayout, pattern: Pattern, head: int, layer: int, viewport: Viewport | None, colours: Colours
) -> dict[str, Any]:
    """The map as plain values, positions in query rows and keys, ends exclusive.

    - image: PNG as base64, a pixel for each cell; rows, keys: its `start`, `stop`, `size` of a cell and `cells`,
      `view` (what to show), `ticks` as (position, words), `length` of the problem, `unit` that painting snaps to
      and `rule`, the distance of lines (0: none).
    - told: cells with words: their edges, and by cell the kind ("e", "p" or "f"), pairs allowed, all pairs, and the
      reason of the pair in its middle, as a place in `words` (-1: none).
    - caption, legend: what a cell is, and (colour, meaning).
    """
    cells = density_map(layout, head, viewport, CELLS)
    grid, problem = cells.grid, layout.problem
    whole = Viewport(0, problem.q_len, 0, problem.kv_len)
    seen = viewport or whole
    return {
        "image": b64encode(encode(palette(cells, colours=colours)[shades(cells)])).decode(),
        "rows": _axis(grid.rows, problem.q_len, seen.row_start, seen.row_stop),
        "keys": _axis(grid.keys, problem.kv_len, seen.key_start, seen.key_stop),
        "offset": problem.offset,
        "told": _told(layout, pattern, head, layer, grid),
        "caption": f"key (token), {caption(cells)}",
        "legend": legend(cells, colours=colours),
    }


def unit(axis: Axis) -> int:
    """What boxes snap to: whole tiles, or where only a few tiles are in view, or cells are larger, whole cells."""
    few = axis.stop - axis.start < FEW_TILES * axis.block
    return axis.size if few else max(axis.size, axis.block)


def _axis(axis: Axis, length: int, start: int, stop: int) -> dict[str, Any]:
    step = axis.size if axis.cells <= RULED / 2 else axis.block
    return {
        "start": axis.start,
        "size": axis.size,
        "cells": axis.cells,
        "view": [start, stop],
        "ticks": [[at, label(at)] for at in ticks(start, stop)],
        "length": length,
        "unit": unit(axis),
        "rule": step if (stop - start) // step <= RULED else 0,
    }


def _told(layout: BlockLayout, pattern: Pattern, head: int, layer: int, grid: Grid) -> dict[str, Any]:
    view = Viewport(grid.rows.start, grid.rows.stop, grid.keys.start, grid.keys.stop)
    coarse = density_map(layout, head, view, (_parts(grid.rows), _parts(grid.keys)))
    rows, keys, area = coarse.grid.rows, coarse.grid.keys, coarse.grid.area
    kind = np.where(coarse.active == 0, 0, np.where(coarse.full == area, 2, 1))
    middle_rows = (rows.edges[:-1] + rows.edges[1:]) // 2 + layout.problem.offset
    middle_keys = (keys.edges[:-1] + keys.edges[1:]) // 2
    i, j = (part.ravel() for part in np.meshgrid(middle_rows, middle_keys, indexing="ij"))
    words, which = reasons(pattern, i, j, layout.problem, layout.block, head, layer)
    return {
        "rows": rows.edges.tolist(),
        "keys": keys.edges.tolist(),
        "kind": "".join("epf"[n] for n in kind.ravel()),
        "pairs": coarse.pairs.ravel().tolist(),
        "several": coarse.grid.level == "pooled",
        "words": words,
        "why": which.tolist(),
    }


def _parts(axis: Axis) -> int:
    """One for each tile, unless there are too many of them, or so few that single tokens are in reach."""
    tiles = -(-axis.stop // axis.block) - axis.start // axis.block
    return tiles if FEW_TILES <= tiles <= TOLD else TOLD
