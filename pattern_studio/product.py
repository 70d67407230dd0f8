"""Products: a query sees a key of the grid where it does so along t, h and w alike. Their column runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .boxes import Boxes, runs_of
from .columns import ALL, Columns, Ints, Strips, band, concatenate, cut, intervals, ragged, united
from .grid import Grid
from .reach import Reach

Product = tuple[Reach, Reach, Reach]


def product_columns(grid: Grid, product: Product, boxes: Boxes, strips: Strips) -> Columns:
    """Column runs of strips, given as the boxes of cells that they hold."""
    dims = list(zip(product, boxes.low, boxes.high, strict=True))
    span = _corners([reach.span(low, high) for reach, low, high in dims])
    core = _corners([reach.core(low, high) for reach, low, high in dims])
    straight = _straight(grid, product[2], boxes, *span)
    box, start, stop = _runs(grid, boxes, strips, *_spread(product, boxes, *span))
    banded = straight[box]
    bands, band_box = _bands(grid, product[2], boxes, box[banded], start[banded], stop[banded])
    box, start, stop = box[~banded], start[~banded], stop[~banded]
    full = np.flatnonzero((core[0] <= core[1]).all(0) & (boxes.cells > 1) & ~straight)
    core_box, core_start, core_stop = _runs(grid, boxes, strips, full, core[0][:, full], core[1][:, full])
    # Of a box's cells at least one sees what lies in its span, and all the others too what lies in its core.
    parts = [
        intervals(strips, boxes.owner[box], start, stop, ALL),
        intervals(strips, boxes.owner[core_box], core_start, core_stop, ALL),
        bands,
    ]
    rows = [np.ones_like(box), boxes.cells[core_box] - 1, boxes.cells[band_box]]
    return united(strips, concatenate(parts), np.concatenate(rows))


def _runs(grid: Grid, boxes: Boxes, strips: Strips, box: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Stretches of the keys that strips look at, from corners of cells: box, start, stop."""
    which, start, stop = runs_of(grid, low, high)
    start, stop, keep = cut(strips, boxes.owner[box[which]], start, stop)
    return box[which[keep]], start[keep], stop[keep]


def _corners(sides: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.stack([low for low, _ in sides]), np.stack([high for _, high in sides])


def _spread(product: Product, boxes: Boxes, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """The spans as boxes: where one query sees every step-th coordinate, each of them is a box of its own."""
    box = np.arange(low.shape[1])
    for dim, reach in enumerate(product):
        if reach.step > 1:
            stepped = boxes.low[dim, box] == boxes.high[dim, box]
            owner, rank = ragged(np.where(stepped, (high[dim] - low[dim]) // reach.step + 1, 1))
            box, low, high, stepped = box[owner], low[:, owner], high[:, owner], stepped[owner]
            low[dim] = np.where(stepped, low[dim] + rank * reach.step, low[dim])
            high[dim] = np.where(stepped, low[dim], high[dim])
    return box, low, high


def _straight(grid: Grid, reach: Reach, boxes: Boxes, low: Ints, high: Ints) -> NDArray[np.bool_]:
    """Boxes of queries in one row that all see equally far along it, and no row as a whole."""
    if grid.morton or grid.tiling != grid.shape or reach.step > 1:
        return np.zeros(len(boxes.owner), bool)
    one_row = (boxes.low[:2] == boxes.high[:2]).all(0) & (boxes.cells > 1)
    return one_row & reach.even(boxes.low[2], boxes.high[2]) & (high[2] - low[2] + 1 < grid.w)


def _bands(grid: Grid, reach: Reach, boxes: Boxes, box: Ints, start: Ints, stop: Ints) -> tuple[Columns, Ints]:
    """What straight boxes see in stretches of rows: bands, and the box of each run."""
    first, query = grid.positions(boxes.low[:, box]), boxes.low[2, box]
    away = start - grid.coordinates(start)[2] - (first - query)  # j - i where both have one w
    local = Strips(first, first + boxes.cells[box] - 1, start, stop)
    runs = band(local, away + reach.low[query] - query, away + reach.high[query] - query)
    box = box[runs.strip]
    return replace(runs, strip=boxes.owner[box]), box
