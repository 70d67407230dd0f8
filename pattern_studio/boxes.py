"""Boxes of grid cells: what a stretch of positions holds, and the positions that a box holds.

A box is `low <= (t, h, w) <= high`, both ends inclusive: int64 [3, boxes].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Ints, ragged
from .grid import Grid


@dataclass(frozen=True)
class Boxes:
    """Boxes, the item that each one belongs to, and how many of that item's cells it stands for.

    owner int64 [boxes]; low, high int64 [3, boxes]; cells int64 [boxes].
    """

    owner: Ints
    low: Ints
    high: Ints
    cells: Ints

    def take(self, index: Ints) -> Boxes:
        """The boxes chosen by an index or a mask."""
        return Boxes(self.owner[index], self.low[:, index], self.high[:, index], self.cells[index])


def boxes_of(grid: Grid, first: Ints, last: Ints) -> Boxes:
    """The cells at positions `first..last`, item by item; what lies outside the grid is left out.

    Exact and without overlap, except in Morton order, where an item has one box around its cells.
    """
    first, last = np.maximum(first, 0), np.minimum(last, grid.cells - 1)
    item = np.flatnonzero(first <= last)
    first, last = first[item], last[item]
    if grid.morton:
        owner, rank = ragged(last - first + 1)
        cell = grid.coordinates(first[owner] + rank)
        head = np.flatnonzero(rank == 0)
        low, high = (reduce.reduceat(cell, head, 1) if len(head) else cell for reduce in (np.minimum, np.maximum))
        return Boxes(item, low, high, last - first + 1)
    owner, low, high = _rows_of(grid, first, last)
    return Boxes(item[owner], low, high, np.prod(high - low + 1, 0))


def _rows_of(grid: Grid, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut stretches at the tiles of the order, then each into at most five boxes of its tile."""
    at, end = grid.coordinates(first), grid.coordinates(last)
    shape, tiling = np.array(grid.shape), np.array(grid.tiling)
    tiles = -(-shape // tiling)
    number, until = (
        (c[0] // tiling[0] * tiles[1] + c[1] // tiling[1]) * tiles[2] + c[2] // tiling[2] for c in (at, end)
    )
    owner, rank = ragged(until - number + 1)
    tile = np.stack(np.unravel_index(number[owner] + rank, tuple(tiles)))
    corner = tile * tiling[:, None]
    size = np.minimum(tiling[:, None], shape[:, None] - corner)
    start = grid.positions(corner)
    begin = np.maximum(first[owner], start) - start
    stop = np.minimum(last[owner] - start, size.prod(0) - 1)
    # Rows of the tile, then planes of rows.
    piece, row, row_end, w, w_end = _split(begin, stop, size[2])
    part, t, t_end, h, h_end = _split(row, row_end, size[1, piece])
    piece, w, w_end = piece[part], w[part], w_end[part]
    base = corner[:, piece]
    return owner[piece], base + np.stack([t, h, w]), base + np.stack([t_end, h_end, w_end])


def _split(first: Ints, last: Ints, size: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Stretches of lines of `size`: owner, line range and range within the lines, at most three for each."""
    line, line_end = first // size, last // size
    one = line == line_end
    head, tail = ~one & (first % size > 0), ~one & ((last + 1) % size > 0)
    inner, inner_end = line + head, line_end - tail
    body = ~one & (inner <= inner_end)
    owner = np.concatenate([np.flatnonzero(part) for part in (one, head, body, tail)])
    pieces = (
        (line, line, first % size, last % size, one),
        (line, line, first % size, size - 1, head),
        (inner, inner_end, np.zeros_like(first), size - 1, body),
        (line_end, line_end, np.zeros_like(first), last % size, tail),
    )
    a, b, c, d = (np.concatenate([piece[field][piece[4]] for piece in pieces]) for field in range(4))
    return owner, a, b, c, d


def runs_of(grid: Grid, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Stretches of positions that hold the cells of each box: box, start, stop (exclusive); any order, apart."""
    if grid.morton:
        return _cells_of(grid, low, high)
    # Cut at the tiles of the order; a stretch ends where a row does, unless rows are whole.
    box = np.arange(low.shape[1])
    for dim in range(3):
        size = grid.tiling[dim]
        owner, rank = ragged(high[dim] // size - low[dim] // size + 1)
        border = (low[dim, owner] // size + rank) * size
        box, low, high = box[owner], low[:, owner], high[:, owner]
        low[dim], high[dim] = np.maximum(low[dim], border), np.minimum(high[dim], border + size - 1)
    corner = low // np.array(grid.tiling)[:, None] * np.array(grid.tiling)[:, None]
    size = np.minimum(np.array(grid.tiling)[:, None], np.array(grid.shape)[:, None] - corner)
    extent = high - low + 1
    whole_rows = extent[2] == size[2]
    whole_planes = whole_rows & (extent[1] == size[1])
    lines_h = np.where(whole_rows, 1, extent[1])
    owner, rank = ragged(lines_h * np.where(whole_planes, 1, extent[0]))
    t, h = np.divmod(rank, lines_h[owner])
    start = grid.positions(low[:, owner] + np.stack([t, h, np.zeros_like(t)]))
    length = extent[2] * np.where(whole_rows, extent[1], 1) * np.where(whole_planes, extent[0], 1)
    return box[owner], start, start + length[owner]


def _cells_of(grid: Grid, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Morton order: every cell by itself, then neighbours joined."""
    extent = high - low + 1
    owner, rank = ragged(extent.prod(0))
    rest, w = np.divmod(rank, extent[2, owner])
    t, h = np.divmod(rest, extent[1, owner])
    key = np.sort(owner * (grid.cells + 1) + grid.positions(low[:, owner] + np.stack([t, h, w])))
    joined = np.diff(key) == 1
    head, tail = np.flatnonzero(np.r_[True, ~joined][: len(key)]), np.flatnonzero(np.r_[~joined, True][: len(key)])
    return key[head] // (grid.cells + 1), key[head] % (grid.cells + 1), key[tail] % (grid.cells + 1) + 1
