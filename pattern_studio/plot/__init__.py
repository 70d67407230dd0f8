"""Pictures of layouts: interactive, PNG, SVG, text. All from the key runs, never from an n x n array."""

from .density import DensityMap, density_map
from .grid import Grid, Viewport
from .png import thumbnail
from .text import draw
from .tile_map import tile_map
from .write import write

__all__ = ["DensityMap", "Grid", "Viewport", "density_map", "draw", "thumbnail", "tile_map", "write"]
