"""Grid: which part of a layout is looked at, and the cells that it is drawn with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..layout import BlockLayout
from ..problem import whole


@dataclass(frozen=True)
class Viewport:
    """Query rows `row_start : row_stop` and keys `key_start : key_stop`, in tokens, stops exclusive.

    >>> Viewport(0, 64, 128, 256).rows
    64
    """

    row_start: int
    row_stop: int
    key_start: int
    key_stop: int

    @property
    def rows(self) -> int:
        return self.row_stop - self.row_start

    @property
    def keys(self) -> int:
        return self.key_stop - self.key_start

    def inside(self, layout: BlockLayout) -> Viewport:
        """Self where it lies in the layout's problem, else an error that names both."""
        q_len, kv_len = layout.problem.q_len, layout.problem.kv_len
        if not (0 <= self.row_start < self.row_stop <= q_len and 0 <= self.key_start < self.key_stop <= kv_len):
            raise StudioError(
                f"expected a part of {q_len} query rows and {kv_len} keys with at least one of each, got rows "
                f"{self.row_start} to {self.row_stop} and keys {self.key_start} to {self.key_stop}; "
                "give Viewport(row_start, row_stop, key_start, key_stop)"
            )
        return self


@dataclass(frozen=True)
class Axis:
    """Cells along one axis: `size` tokens each, the first at token `start`, the last one cut at `stop`.

    A cell lies inside one block or holds whole blocks, so no block is ever cut by a cell's edge.
    """

    start: int
    stop: int
    size: int
    block: int

    @property
    def cells(self) -> int:
        return -(-(self.stop - self.start) // self.size)

    @property
    def edges(self) -> NDArray[np.int64]:
        """Token positions where cells begin and the last one ends, int64 [cells + 1]."""
        return np.minimum(self.start + np.arange(self.cells + 1) * self.size, self.stop)

    @property
    def widths(self) -> NDArray[np.int64]:
        """Tokens in each cell, int64 [cells]."""
        return np.diff(self.edges)


@dataclass(frozen=True)
class Grid:
    """Cells over query rows and keys."""

    rows: Axis
    keys: Axis

    @property
    def area(self) -> NDArray[np.int64]:
        """Pairs in each cell, int64 [row cells, key cells]."""
        return self.rows.widths[:, None] * self.keys.widths

    @property
    def level(self) -> str:
        """What one cell is: `tokens` (a part of a tile), `tile` (exactly one) or `pooled` (several)."""
        sides = [(axis.size > axis.block) - (axis.size < axis.block) for axis in (self.rows, self.keys)]
        if max(sides) > 0:
            return "pooled"
        return "tile" if sides == [0, 0] else "tokens"


def grid_of(layout: BlockLayout, viewport: Viewport | None, max_rows: int, max_keys: int) -> Grid:
    """The finest grid of at most `max_rows` x `max_keys` cells over a viewport, or over everything.

    Its outer edges go to the next cell borders, so it may show a little more than the viewport.

    >>> import pattern_studio as ps
    >>> grid_of(ps.lower(ps.causal, q_len=1_048_576, block=128), None, 512, 512).keys.size
    2048
    """
    problem = layout.problem
    if viewport is None:
        viewport = Viewport(0, problem.q_len, 0, problem.kv_len)
    if not problem.q_len or not problem.kv_len:
        raise StudioError(
            f"expected a problem with query rows and keys to draw, got q_len {problem.q_len} and kv_len "
            f"{problem.kv_len}; give at least one of each"
        )
    view = viewport.inside(layout)
    block_q, block_k = layout.block
    return Grid(
        _axis(view.row_start, view.row_stop, problem.q_len, block_q, whole("the most row cells", max_rows, 1)),
        _axis(view.key_start, view.key_stop, problem.kv_len, block_k, whole("the most key cells", max_keys, 1)),
    )


def _axis(first: int, last: int, length: int, block: int, most: int) -> Axis:
    def cells(size: int) -> int:
        return -(-last // size) - first // size

    # Inside a block any divisor of it; above it a power of two of blocks, which makes rounder numbers.
    size = next((n for n in range(1, block + 1) if block % n == 0 and cells(n) <= most), 2 * block)
    while cells(size) > most:
        size *= 2
    return Axis(first // size * size, min(-(-last // size) * size, length), size, block)
