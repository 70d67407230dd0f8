"""Parts that presets given in blocks share."""

from __future__ import annotations

from functools import reduce
from operator import or_

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole

MAX_WINDOW = 255  # blocks: each one is a part of the union that is printed


def block_window(preset: str, block: int, blocks: int) -> Pattern:
    """Pairs whose blocks lie at most `blocks // 2` apart; `blocks` is odd."""
    if whole(f"{preset}'s window_blocks", blocks, 1, MAX_WINDOW) % 2 == 0:
        raise StudioError(f"{preset}'s window_blocks counts the query's own block and is odd, got {blocks}")
    own = PRIMITIVES["chunk"](block)
    half = blocks // 2
    return reduce(or_, (own >> n * block if n else own for n in range(-half, half + 1)))


def first_blocks(preset: str, block: int, blocks: int) -> Pattern:
    """The first blocks as global rows and columns."""
    stop = block * whole(f"{preset}'s global_blocks", blocks, 0)
    return PRIMITIVES["globals"](rows=range(stop), cols=range(stop))
