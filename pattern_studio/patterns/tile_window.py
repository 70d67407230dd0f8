"""tile_window: windows that slide tile by tile over a token grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..errors import StudioError
from ..gridleaf import GridLeaf, Product
from ..reach import Reach


@dataclass(frozen=True)
class TileWindow(GridLeaf):
    """A query sees the `window` tiles nearest to its own along every dimension; all queries of a tile see the same.

    Predicate, along each dimension and joined by and: with `a` and `b` the tiles of `i` and `j`,
    `n` tiles in all and `k = window`: `start <= b < start + k`, where
    `start = clip(a - k // 2, 0, n - k)`: at borders the window moves in. An even window reaches one
    tile further to the left. Tiles have `tile` cells, those at the far border what is left over;
    with `shift=s` the first tile has `s` cells, so `window=1` gives Swin's shifted windows. `tile`,
    `window` and `shift` take one number per dimension, or one for all.

    With a grid numbered in the same tiles, `grid(..., tile=...)`, tiles of pairs become whole blocks.

    Source: Sliding Tile Attention (Zhang et al. 2025); Swin Transformer (Liu et al. 2021).

    >>> from pattern_studio.grid import Grid
    >>> near = TileWindow(Grid(w=10), tile=2, window=3)
    >>> [j for j in range(10) if near.allows(0, j)], [j for j in range(10) if near.allows(5, j)]
    ([0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7])
    """

    tile: tuple[int, ...] = field(kw_only=True)
    window: tuple[int, ...] = field(kw_only=True)
    shift: tuple[int, ...] = field(default=(), kw_only=True)
    name: ClassVar[str] = "tile_window"

    def __post_init__(self) -> None:
        self.needs_grid()
        for option in ("tile", "window"):
            object.__setattr__(self, option, self.grid.per_dim(f"tile_window's {option}", getattr(self, option), 1))
        shift = self.grid.per_dim("tile_window's shift", 0 if self.shift == () else self.shift, 0)
        object.__setattr__(self, "shift", shift if any(shift) else ())
        for size, tile, window, first in self._dims():
            if first >= tile:
                raise StudioError(f"tile_window's shift must be less than its tile {tile}, got {first}")
            if window > _tiles(size, tile, first):
                raise StudioError(
                    f"tile_window's window must fit the grid: {window} tiles of {tile} on {size} cells; "
                    "use a smaller window or tile"
                )

    def _dims(self) -> list[tuple[int, int, int, int]]:
        sizes = self.grid.sizes
        return list(zip(sizes, self.tile, self.window, self.shift or (0,) * len(sizes), strict=True))

    def products(self) -> tuple[Product, ...]:
        return (self.padded(tuple(_reach(*dim) for dim in self._dims()), _reach(1, 1, 1, 0)),)


def _tiles(size: int, tile: int, first: int) -> int:
    """Number of tiles, the first one of `first` cells if that is not 0."""
    return -(-(size - first) // tile) + (first > 0)


def _reach(size: int, tile: int, window: int, first: int) -> Reach:
    before = (tile - first) % tile  # cells of the first tile that the grid does not have
    own = (np.arange(size) + before) // tile
    start = np.clip(own - window // 2, 0, _tiles(size, tile, first) - window)
    return Reach(np.maximum(start * tile - before, 0), np.minimum((start + window) * tile - before, size) - 1)


PATTERN = TileWindow
