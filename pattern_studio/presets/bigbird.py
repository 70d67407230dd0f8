"""BigBird (Zaheer et al. 2020, arXiv:2007.14062)."""

from __future__ import annotations

from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole
from .blockwise import block_window, first_blocks


def bigbird(
    block: int = 64, window_blocks: int = 3, random_blocks: int = 3, global_blocks: int = 2, seed: int = 0
) -> Pattern:
    """BigBird (ITC): for each block its neighbours, some random blocks, and the first blocks as global ones.

    Predicate, with the blocks `I = i // block` and `J = j // block`: `|I - J| <= window_blocks // 2`, or
    J is one of `random_blocks` drawn for I, or I or J is below `global_blocks`. `window_blocks` is odd.
    The authors' code takes the first and the last block as global; a pattern has no last block, so
    here they are the first ones, as in DeepSpeed.

    Source: BigBird (Zaheer et al. 2020, arXiv:2007.14062).

    >>> str(bigbird(block=4, window_blocks=1, random_blocks=1, global_blocks=1, seed=7))
    'chunk(4) | random(1, unit=4, seed=7) | globals(rows=(range(0, 4),), cols=(range(0, 4),))'
    """
    size = whole("bigbird's block", block, 1)
    near = block_window("bigbird", size, window_blocks)
    if random_blocks:
        near = near | PRIMITIVES["random"](random_blocks, unit=size, seed=seed)
    return near | first_blocks("bigbird", size, global_blocks)
