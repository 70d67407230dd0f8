"""Patterns from graphs and matrices."""

from __future__ import annotations

from ..expr import Pattern
from ..leaf import BlockUnit
from ..patterns import PRIMITIVES
from ..problem import whole
from .blockwise import first_blocks

butterfly, expander, globals_, hierarchical, window_ = (
    PRIMITIVES[word] for word in ("butterfly", "expander", "globals", "hierarchical", "window")
)


def pixelated_butterfly(unit: int = 64, levels: int = 4, global_blocks: int = 1) -> Pattern:
    """Pixelated Butterfly: a flat block butterfly, and global blocks for its low-rank part.

    Predicate, with `I = i // unit` and `J = j // unit`: `I ^ J` is 0 or `2 ** l` for an `l < levels`, or I or
    J is below `global_blocks`.

    Source: Dao et al. 2022 (arXiv:2112.00029).

    >>> str(pixelated_butterfly(4, 2))
    'butterfly(unit=4, levels=2) | globals(rows=(range(0, 4),), cols=(range(0, 4),))'
    """
    size = whole("pixelated_butterfly's unit", unit, 1)
    return butterfly(unit=size, levels=levels) | first_blocks("pixelated_butterfly", size, global_blocks)


def exphormer(
    degree: int = 6,
    window: int = 3,
    global_tokens: tuple[int | range, ...] = (0,),
    unit: int | BlockUnit = 1,
    seed: int = 0,
) -> Pattern:
    """Exphormer on a sequence: neighbours, a random regular graph, and global tokens.

    Predicate: `|i - j| <= window // 2`, or that of `expander(degree, unit=unit, seed=seed)`, or `i` or `j` is
    one of `global_tokens`. The paper takes the edges of a given graph where this takes neighbours.

    Source: Shirzad et al. 2023 (arXiv:2303.06147).

    >>> str(exphormer(degree=2))
    'window(1, 1) | expander(2) | globals(rows=(0,), cols=(0,))'
    """
    half = whole("exphormer's window", window, 1) // 2
    near = window_(half, half)
    return near | expander(degree, unit=unit, seed=seed) | globals_(rows=global_tokens, cols=global_tokens)


def h_transformer(block: int = 16, levels: int = 6) -> Pattern:
    """H-Transformer-1D: neighbouring blocks at every resolution, the keys half as many at each further level.

    Predicate: `|i - j| < 2 * block * 2 ** l` and `j % 2 ** l == 0` for an `l < levels`. The paper averages
    groups of `2 ** l` keys; a pattern keeps the first of each.

    Source: Zhu and Soricut 2021 (arXiv:2107.11906).

    >>> str(h_transformer(4, 3))
    'hierarchical(((8, 1), (16, 2), (32, 4)))'
    """
    size, count = whole("h_transformer's block", block, 1), whole("h_transformer's levels", levels, 1, 24)
    return hierarchical(tuple((2 * size * 2**level, 2**level) for level in range(count)))
