"""density_map: how many pairs each cell of a picture holds, exactly, straight from the key runs.

Nothing of size q_len x kv_len is ever made. A run of FULL tiles adds one straight ramp to the running
count of its row of cells, so it costs the same however long it is; bands are counted in closed form per
cell they touch; bit masks are counted once each and then treated as tiles of that weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..columns import ragged
from ..errors import StudioError
from ..layout import BlockLayout, TileKind
from .grid import Axis, Grid, Viewport, grid_of

Counts = NDArray[np.int64]
UNPACKED = 2**24  # mask pairs that are unpacked at a time


@dataclass(frozen=True)
class DensityMap:
    """Pairs in each cell of a grid, every array int64 [row cells, key cells].

    `full`: pairs in FULL tiles; `partial`: allowed pairs in PARTIAL tiles; `reach`: all pairs in
    PARTIAL tiles, allowed or not.
    """

    grid: Grid
    full: Counts
    partial: Counts
    reach: Counts

    @property
    def pairs(self) -> Counts:
        """Allowed pairs."""
        return self.full + self.partial

    @property
    def active(self) -> Counts:
        """Pairs in active tiles: what a block kernel computes."""
        return self.full + self.reach

    @property
    def mean(self) -> NDArray[np.float64]:
        """Token density of each cell, 0 to 1; `(mean * grid.area).sum()` is the number of allowed pairs."""
        return self.pairs / self.grid.area


def density_map(
    layout: BlockLayout,
    head: int = 0,
    viewport: Viewport | None = None,
    max_cells: int | tuple[int, int] = 512,
) -> DensityMap:
    """Pooled pair counts of one head, exact, in time that follows the runs in view and never q_len x kv_len.

    Args:
        layout: any layout.
        head: which head.
        viewport: the part to look at, in tokens; None is everything.
        max_cells: the most cells along an axis, or (rows, keys).

    Raises:
        StudioError: no such head, or a viewport outside the layout.

    Example:
        >>> import pattern_studio as ps
        >>> layout = ps.lower(ps.parse("causal & window(63, 0)"), q_len=16384, block=128)
        >>> int(density_map(layout, max_cells=256).pairs.sum()) == layout.pairs
        True
    """
    if not 0 <= head < layout.problem.heads:
        raise StudioError(f"expected a head from 0 to {layout.problem.heads - 1}, got {head}; choose one of them")
    max_rows, max_keys = (max_cells, max_cells) if isinstance(max_cells, int) else max_cells
    grid = grid_of(layout, viewport, max_rows, max_keys)
    runs = _Runs(layout, head, grid)
    shape = grid.rows.cells, grid.keys.cells
    return DensityMap(
        grid,
        _rectangles(runs, TileKind.FULL, shape),
        _bands(runs, layout, shape) + _masks(runs, layout, shape),
        _rectangles(runs, TileKind.BAND, shape) + _rectangles(runs, TileKind.BITS, shape),
    )


class _Runs:
    """The runs in view, each once for every row of cells it crosses, by kind.

    `cell` is the row of cells, `part` which part of the query block lies there, `low : high` its
    query rows; `first : stop` are tiles, `left : right` tokens, all cut to the grid.
    """

    def __init__(self, layout: BlockLayout, head: int, grid: Grid) -> None:
        self.grid, rows, keys = grid, grid.rows, grid.keys
        block_q, block_k = layout.block
        base = int(layout.head_group[head]) * layout.q_blocks
        span = slice(
            layout.rows.indptr[base + rows.start // block_q], layout.rows.indptr[base + -(-rows.stop // block_q)]
        )
        line = layout.rows.line[span] - base
        first = np.maximum(layout.rows.start[span].astype(np.int64), keys.start // block_k)
        stop = layout.rows.start[span].astype(np.int64) + layout.rows.length[span]
        stop = np.minimum(stop, -(-keys.stop // block_k))
        seen = np.flatnonzero(first < stop)
        parts = max(1, block_q // rows.size)
        index, part = ragged(np.full(len(seen), parts))
        at = seen[index]
        low = line[at] * block_q + part * (block_q // parts)
        high = np.minimum(low + block_q // parts, rows.stop)
        some = (low >= rows.start) & (low < high)
        self.at, self.part, self.low, self.high = at[some], part[some], low[some], high[some]
        self.cell = (self.low - rows.start) // rows.size
        self.first, self.stop = first[self.at], stop[self.at]
        self.left = np.maximum(self.first * block_k, keys.start)
        self.right = np.minimum(self.stop * block_k, keys.stop)
        self.kind, self.ref = layout.rows.kind[span][self.at], layout.rows.ref[span][self.at]

    def of(self, kind: TileKind) -> NDArray[np.int64]:
        return np.flatnonzero(self.kind == kind)


def _rectangles(runs: _Runs, kind: TileKind, shape: tuple[int, int]) -> Counts:
    """All pairs in tiles of a kind."""
    n, keys = runs.of(kind), runs.grid.keys
    height = runs.high[n] - runs.low[n]
    return _pooled(runs.cell[n], runs.left[n], runs.right[n], height, keys.start, keys.size, keys.edges, shape)


def _pooled(
    cell: Counts, left: Counts, right: Counts, weight: Counts, start: int, size: int, edges: Counts, shape
) -> Counts:
    """Sum of `weight` per step over `left : right`, pooled between the edges.

    The running count at position x is the sum of `weight * max(x - left, 0) - weight * max(x - right, 0)`;
    at the edges that is `slope * x - rest`, where slope and rest change only where a run begins or ends.
    """
    rows, cells = shape
    slope, rest = np.zeros((2, rows * (cells + 1)), np.int64)
    for position, signed in ((left, weight), (right, -weight)):
        edge = cell * (cells + 1) + -(-(position - start) // size)
        np.add.at(slope, edge, signed)
        np.add.at(rest, edge, signed * position)
    slope, rest = (a.reshape(rows, cells + 1).cumsum(1) for a in (slope, rest))
    return np.diff(slope * edges - rest, axis=1)


def _bands(runs: _Runs, layout: BlockLayout, shape: tuple[int, int]) -> Counts:
    """Pairs with `lo <= j - i <= hi`, counted for every cell that a band run touches."""
    n, keys = runs.of(TileKind.BAND), runs.grid.keys
    begin = (runs.left[n] - keys.start) // keys.size
    end = (runs.right[n] - 1 - keys.start) // keys.size + 1
    owner, rank = ragged(end - begin)
    column = begin[owner] + rank
    n = n[owner]
    left = np.maximum(runs.left[n], keys.start + column * keys.size)
    right = np.minimum(runs.right[n], keys.start + (column + 1) * keys.size)
    low, high = runs.low[n] + layout.problem.offset, runs.high[n] + layout.problem.offset
    lo, hi = layout.bands[runs.ref[n]].T
    pairs = _below(hi, low, high, left, right) - _below(lo - 1, low, high, left, right)
    out = np.zeros(shape, np.int64)
    np.add.at(out, (runs.cell[n], column), np.maximum(pairs, 0))
    return out


def _below(bound: Counts, low: Counts, high: Counts, left: Counts, right: Counts) -> Counts:
    """Pairs of rows `low : high` and keys `left : right` with `j - i <= bound`."""
    bound = np.clip(bound, left - high, right - low)  # beyond these nothing changes, and sums stay in 64 bits

    def triangle(n: Counts) -> Counts:
        n = np.maximum(n, 0)
        return n * (n + 1) // 2

    # Row i sees max(0, i + bound + 1 - left) - max(0, i + bound + 1 - right) of the keys.
    seen = triangle(high + bound - left) - triangle(low + bound - left)
    return seen - (triangle(high + bound - right) - triangle(low + bound - right))


def _masks(runs: _Runs, layout: BlockLayout, shape: tuple[int, int]) -> Counts:
    """Pairs of bit masks: each mask is counted once, in the parts that cells cut it into."""
    n, keys = runs.of(TileKind.BITS), runs.grid.keys
    block_k = layout.block[1]
    refs, which = np.unique(runs.ref[n].astype(np.int64), return_inverse=True)
    parts_q, parts_k = max(1, layout.block[0] // runs.grid.rows.size), max(1, block_k // keys.size)
    counts = _mask_parts(layout, refs, parts_q, parts_k)[which, runs.part[n]]  # [runs, parts_k]
    if parts_k == 1:  # cells hold whole tiles: pool along the axis of tiles
        tiles = Axis(keys.start // block_k, -(-keys.stop // block_k), keys.size // block_k, 1)
        return _pooled(
            runs.cell[n], runs.first[n], runs.stop[n], counts[:, 0], tiles.start, tiles.size, tiles.edges, shape
        )
    owner, rank = ragged((runs.stop[n] - runs.first[n]) * parts_k)
    column = (runs.first[n][owner] * block_k - keys.start) // keys.size + rank
    inside = (column >= 0) & (column < shape[1])
    owner, rank, column = owner[inside], rank[inside], column[inside]
    out = np.zeros(shape, np.int64)
    np.add.at(out, (runs.cell[n][owner], column), counts[owner, rank % parts_k])
    return out


def _mask_parts(layout: BlockLayout, refs: Counts, parts_q: int, parts_k: int) -> Counts:
    """Allowed pairs in each part of the chosen masks, int64 [refs, parts_q, parts_k]."""
    block_q, block_k = layout.block
    if parts_q == parts_k == 1:
        return np.bitwise_count(layout.bits[refs]).sum(1, dtype=np.int64).reshape(-1, 1, 1)
    out = np.empty((len(refs), parts_q, parts_k), np.int64)
    step = max(1, UNPACKED // (block_q * block_k))
    for begin in range(0, len(refs), step):
        packed = layout.bits[refs[begin : begin + step]]
        flat = np.unpackbits(packed, axis=1, count=block_q * block_k, bitorder="little")
        parts = flat.reshape(len(packed), parts_q, block_q // parts_q, parts_k, block_k // parts_k)
        out[begin : begin + step] = parts.sum((2, 4), dtype=np.int64)
    return out
