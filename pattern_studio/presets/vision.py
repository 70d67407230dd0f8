"""Windows over images and videos."""

from __future__ import annotations

from ..errors import StudioError
from ..expr import Pattern
from ..grid import Grid
from ..patterns import PRIMITIVES
from ..problem import whole

axial, radial, sink, tile_window = (PRIMITIVES[word] for word in ("axial", "radial", "sink", "tile_window"))


def swin(h: int = 56, w: int = 56, window: int = 7, shifted: bool = False) -> Pattern:
    """Swin Transformer: windows of an image that do not overlap; in every second layer moved by half a window.

    Predicate: along both dimensions `(y + m - s) // m` is equal, with `m = window` and `s = m // 2` if
    `shifted`, else 0. Shifted windows do not wrap around: the paper's cyclic shift masks what would.

    Source: Liu et al. 2021 (arXiv:2103.14030).

    >>> str(swin(h=4, w=4, window=2, shifted=True))
    'tile_window(grid(h=4, w=4), tile=(2, 2), window=(1, 1), shift=(1, 1))'
    """
    if not isinstance(shifted, bool):
        raise StudioError(f"swin's shifted must be True or False, got {shifted!r}")
    shift = whole("swin's window", window, 1) // 2 if shifted else 0
    return tile_window(Grid(h=h, w=w), tile=window, window=1, shift=shift)


def sliding_tile(
    t: int = 30,
    h: int = 48,
    w: int = 80,
    tile: tuple[int, ...] = (6, 8, 8),
    window: tuple[int, ...] = (3, 3, 3),
) -> Pattern:
    """Sliding tile attention for video: a window of tiles, tokens numbered tile by tile, so blocks are whole.

    Predicate: that of `tile_window` on `grid(t, h, w)` in tile order; `window` counts tiles.

    Source: Zhang et al. 2025 (arXiv:2502.04507); the defaults are their code's example, a video of
    30 x 48 x 80 latent tokens.

    >>> str(sliding_tile(4, 4, 4, tile=(2, 2, 2), window=(1, 1, 1)))
    'tile_window(grid(t=4, h=4, w=4, tile=(2, 2, 2)), tile=(2, 2, 2), window=(1, 1, 1))'
    """
    return tile_window(Grid(t=t, h=h, w=w, tile=tile), tile=tile, window=window)


def radial_video(frame: int = 1560) -> Pattern:
    """Radial attention for video: frames seen the less the further away they are, and the first frame by all.

    Predicate: that of `radial(frame)`, or `j < frame`.

    Source: Li et al. 2025 (arXiv:2506.19852); a frame of 1560 tokens is Wan's at 480 x 832.

    >>> str(radial_video(64))
    'radial(64) | sink(64)'
    """
    return radial(frame) | sink(frame)


def axial_image(h: int = 64, w: int = 64) -> Pattern:
    """Axial attention on an image: the query's row and its column.

    Predicate: `i` and `j` share a row or a column of the grid.

    Source: Ho et al. 2019 (arXiv:1912.12180); both axes in one layer, CCNet (Huang et al. 2019).

    >>> str(axial_image(8, 8))
    'axial(grid(h=8, w=8))'
    """
    return axial(Grid(h=h, w=w))
