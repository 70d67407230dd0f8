"""Grid: tokens laid out in one, two or three dimensions, and the order in which they are numbered."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .columns import Ints
from .errors import StudioError
from .problem import whole

MAX_CELLS = 2**26  # tables with a few numbers per cell stay below a few GB


@dataclass(frozen=True, repr=False)
class Grid:
    """A grid of `t` frames of `h` rows of `w` tokens; leave out `t`, or `t` and `h`, for fewer dimensions.

    Tokens are numbered row by row, the last dimension fastest. With `tile=(...)`, one size per
    dimension, they are numbered tile by tile, row by row inside each (tiles at the far borders may
    be smaller); with `morton=True`, by the interleaved bits of their coordinates (Morton 1966).
    Position 0 is the first cell; positions outside `0 <= p < cells` lie in no grid and belong to nothing.

    >>> Grid(h=2, w=4, tile=(2, 2)).positions(np.indices((1, 2, 4)))[0].tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """

    t: int | None = field(default=None, kw_only=True)
    h: int | None = field(default=None, kw_only=True)
    w: int = field(kw_only=True)
    tile: tuple[int, ...] | None = field(default=None, kw_only=True)
    morton: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.t is not None and self.h is None:
            raise StudioError("a grid with t has h too: write grid(t=..., h=..., w=...)")
        for name in ("t", "h", "w"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(f"grid's {name}", getattr(self, name), 1))
        if self.cells > MAX_CELLS:
            raise StudioError(f"a grid has at most {MAX_CELLS:,} cells, got {self.cells:,}; use a smaller grid")
        if self.tile is not None:
            object.__setattr__(self, "tile", self.per_dim("grid's tile", self.tile, 1))
        if not isinstance(self.morton, bool):
            raise StudioError(f"grid's morton must be True or False, got {self.morton!r}")
        if self.morton and self.tile is not None:
            raise StudioError("a grid is numbered in one order: give it tile or morton, not both")

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return f"grid({', '.join(f'{name}={value!r}' for name, value in given if value not in (None, False))})"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells along each dimension that was given."""
        return tuple(n for n in (self.t, self.h, self.w) if n is not None)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Cells along t, h and w, 1 for those left out."""
        return (self.t or 1, self.h or 1, self.w)

    @property
    def cells(self) -> int:
        """Number of tokens in the grid."""
        return math.prod(self.sizes)

    @property
    def tiling(self) -> tuple[int, int, int]:
        """Size of the tiles that the order goes by; row by row is one tile of the whole grid."""
        tile = self.sizes if self.tile is None else self.tile
        t, h, w = (*(1,) * (3 - len(tile)), *tile)
        return min(t, self.shape[0]), min(h, self.shape[1]), min(w, self.shape[2])

    def per_dim(self, name: str, value: object, low: int) -> tuple[int, ...]:
        """Check one whole number per dimension; a single number stands for all."""
        values = value if isinstance(value, (tuple, list)) else (value,) * len(self.sizes)
        if len(values) != len(self.sizes):
            raise StudioError(f"{name} takes one number per dimension, {len(self.sizes)} of them; got {len(values)}")
        return tuple(whole(name, n, low) for n in values)

    def inside(self, position: Ints) -> NDArray[np.bool_]:
        """Whether each position is a cell of the grid."""
        return np.greater_equal(position, 0) & np.less(position, self.cells)

    def positions(self, cell: Ints) -> Ints:
        """Position of each cell, int64 [...], from its coordinates [3, ...]."""
        t, h, w = cell
        (T, H, W), (tt, th, tw) = self.shape, self.tiling
        if self.morton:
            return _morton(self.shape)[0][(t * H + h) * W + w]
        t0, h0, w0 = t // tt * tt, h // th * th, w // tw * tw
        nt, nh, nw = np.minimum(tt, T - t0), np.minimum(th, H - h0), np.minimum(tw, W - w0)
        corner = t0 * (H * W) + nt * (h0 * W + nh * w0)
        return corner + ((t - t0) * nh + (h - h0)) * nw + (w - w0)

    def coordinates(self, position: Ints) -> Ints:
        """Coordinates of each position in the grid, int64 [3, ...]."""
        (T, H, W), (tt, th, tw) = self.shape, self.tiling
        if self.morton:
            cell = _morton(self.shape)[1][position]
            return np.stack([cell // (H * W), cell // W % H, cell % W])
        t0, rest = np.divmod(position, tt * H * W)
        nt = np.minimum(tt, T - t0 * tt)
        h0, rest = np.divmod(rest, nt * (th * W))
        nh = np.minimum(th, H - h0 * th)
        w0, rest = np.divmod(rest, nt * nh * tw)
        nw = np.minimum(tw, W - w0 * tw)
        row, w = np.divmod(rest, nw)
        t, h = np.divmod(row, nh)
        return np.stack([t0 * tt + t, h0 * th + h, w0 * tw + w])


@lru_cache(maxsize=8)
def _morton(shape: tuple[int, int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Position of each row-major cell in Morton order, and the cell at each position."""
    code = np.zeros(shape, np.int64)
    axes, at = np.indices(shape, sparse=True), 0
    for bit in range(max(shape).bit_length()):
        for size, axis in zip(shape[::-1], axes[::-1], strict=True):
            if (size - 1) >> bit:
                code |= (axis >> bit & 1) << at
                at += 1
    cell = np.argsort(code, axis=None, kind="stable")
    position = np.empty_like(cell)
    position[cell] = np.arange(len(cell))
    return position, cell
