"""From pair counts to colours: what each cell of a picture looks like, and the legend that says so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from .colours import LIGHT, Colours, ramp, rgb
from .density import DensityMap

POOLS = ("mean", "max")
EMPTY_CODE, FULL_CODE = 0, 101  # 1 to 100 is a share of allowed pairs, the smallest share still visible


def shades(cells: DensityMap, pool: str = "mean") -> NDArray[np.uint8]:
    """Colour code of each cell, uint8 [row cells, key cells]; `palette` has the colours.

    Cells inside a PARTIAL tile show the square root of their share of allowed pairs; cells of one tile show
    its kind; cells of several tiles show the mean density, or with `pool="max"` the fullest kind of tile.

    Raises:
        StudioError: `pool` is neither mean nor max.
    """
    if pool not in POOLS:
        raise StudioError(f"expected pool to be 'mean' or 'max', got {pool!r}; choose how tiles share a cell")
    level, area = cells.grid.level, cells.grid.area
    if level == "tile" or (level == "pooled" and pool == "max"):
        share = np.ones(area.shape)
        full = cells.full > 0
    elif level == "pooled":
        share = cells.pairs / area
        full = cells.full == area
    else:
        share = np.sqrt(cells.partial / np.maximum(cells.reach, 1))  # or thin diagonals would drown in what is masked
        full = cells.full > 0
    codes = np.where(cells.active > 0, 1 + np.floor(99 * share), EMPTY_CODE)
    return np.where(full, FULL_CODE, codes).astype(np.uint8)


def palette(cells: DensityMap, pool: str = "mean", colours: Colours = LIGHT) -> NDArray[np.uint8]:
    """The colour of every code, uint8 [102, 3]."""
    c = colours
    stops = (c.faint, c.partial, c.full) if _graded(cells, pool) else (c.masked, c.partial)
    return np.concatenate([[rgb(c.background)], ramp(100, *stops), [rgb(c.full)]]).astype(np.uint8)


def legend(cells: DensityMap, pool: str = "mean", colours: Colours = LIGHT) -> list[tuple[str, str]]:
    """(colour, meaning) of what the picture shows, most filled first.

    >>> import pattern_studio as ps
    >>> from pattern_studio.plot.density import density_map
    >>> [meaning for _, meaning in legend(density_map(ps.lower(ps.causal, q_len=1024, block=2)))]
    ['full tile', 'partial tile', 'empty']
    """
    c = colours
    if _graded(cells, pool):
        faint, half = (_hex(palette(cells, pool, colours)[code]) for code in (1, 50))
        return [(c.full, "every pair allowed"), (half, "half"), (faint, "a few"), (c.background, "none")]
    if cells.grid.level == "tokens":
        return [
            (c.full, "full tile"),
            (c.partial, "partial, allowed"),
            (c.masked, "partial, masked"),
            (c.background, "empty"),
        ]
    holds = "cell has a " if cells.grid.level == "pooled" else ""
    return [(c.full, f"{holds}full tile"), (c.partial, f"{holds}partial tile"), (c.background, "empty")]


def caption(cells: DensityMap, pool: str = "mean") -> str:
    """What one cell is, in tokens, and how it was pooled."""
    rows, keys = cells.grid.rows, cells.grid.keys
    if (rows.size, keys.size) == (1, 1):
        return "one cell = one pair"
    size = f"one cell = {rows.size:,} x {keys.size:,} tokens"
    if cells.grid.level == "tile":
        return f"{size}, one tile"
    if cells.grid.level == "tokens":
        return f"{size}, mean of its pairs"
    tiles = max(1, rows.size // rows.block) * max(1, keys.size // keys.block)
    return f"{size}, {pool} of {tiles:,} tiles"


def _graded(cells: DensityMap, pool: str) -> bool:
    return cells.grid.level == "pooled" and pool == "mean"


def _hex(colour: NDArray[np.uint8]) -> str:
    return "#" + "".join(f"{channel:02X}" for channel in colour.tolist())
