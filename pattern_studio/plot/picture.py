"""What a still picture shows, whatever its format: cells as colours, and where axes and words go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..layout import BlockLayout
from .density import DensityMap, density_map
from .grid import Viewport
from .shade import caption, legend, palette, shades

SIDE = 640  # pixels of the longer side of the map, about
LEFT, TOP, RIGHT, BOTTOM = 66, 16, 20, 84  # room for row numbers, key numbers, the caption and the legend


@dataclass(frozen=True)
class Picture:
    """One head of a layout, ready to be written: its cells, their pixel sizes and its colours."""

    cells: DensityMap
    pool: str

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Colour code of each cell, uint8 [row cells, key cells]."""
        return shades(self.cells, self.pool)

    @cached_property
    def colours(self) -> NDArray[np.uint8]:
        """Colour of each code, uint8 [codes, 3]."""
        return palette(self.cells, self.pool)

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of the map in pixels; one token is as wide as high unless one side is 4 times the other."""
        rows, keys = self.cells.grid.rows, self.cells.grid.keys
        tall, wide = rows.stop - rows.start, keys.stop - keys.start
        ratio = min(max(tall / wide, 0.25), 4.0)
        return (SIDE, round(SIDE / ratio)) if ratio > 1 else (round(SIDE * ratio), SIDE)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the whole picture in pixels."""
        height, width = self.pixels
        return TOP + height + BOTTOM, max(LEFT + width + RIGHT, LEFT + SIDE + RIGHT)

    @property
    def caption(self) -> str:
        return f"key (token), {caption(self.cells, self.pool)}"

    @property
    def legend(self) -> list[tuple[str, str]]:
        return legend(self.cells, self.pool)

    def at(self, axis: str, position: int) -> float:
        """Pixel, from the map's corner, of a token position along `rows` or `keys`."""
        side = getattr(self.cells.grid, axis)
        return (position - side.start) / (side.stop - side.start) * self.pixels[0 if axis == "rows" else 1]


def picture(
    layout: BlockLayout,
    head: int = 0,
    viewport: Viewport | None = None,
    max_cells: int = 320,
    pool: str = "mean",
) -> Picture:
    """One head of a layout as a still picture of at most `max_cells` cells along an axis.

    >>> import pattern_studio as ps
    >>> picture(ps.lower(ps.causal, q_len=512, block=64)).pixels
    (640, 640)
    """
    return Picture(density_map(layout, head, viewport, max_cells), pool)
