"""to_pattern: the choice made for one item, as a pattern that can be seen, edited and exported."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import block_shape, whole

CAUSAL, blocks, heads = PRIMITIVES["causal"], PRIMITIVES["blocks"], PRIMITIVES["heads"]


def to_pattern(
    mask: Tensor | NDArray[np.bool_], block: int | tuple[int, int], *, causal: bool = True, q_offset: int = 0
) -> Pattern:
    """A block mask of one item as `blocks(...)`, one per head where heads differ, `causal &` before it.

    Args:
        mask: bool [heads, q_blocks, kv_blocks], a tensor on any device or an array.
        block: (block_q, block_k) tokens that it was chosen for.
        causal: cut the tiles at the diagonal, as the choice means it.
        q_offset: position of query row 0.

    Raises StudioError for another shape or dtype.

    >>> str(to_pattern(np.array([[[True, False], [True, True]]]), block=64))
    'causal & blocks((64, 64), ((0,), (range(0, 2),)))'
    """
    table = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if table.ndim != 3 or table.dtype != bool or not len(table):
        raise StudioError(
            f"expected one item's mask as bool [heads, q_blocks, kv_blocks], got {list(table.shape)} {table.dtype}; "
            "take one batch item"
        )
    shape, first = block_shape(block), whole("q_offset", q_offset, 0)
    return by_head([_head(one, shape, causal, first) for one in table])


def by_head(patterns: list[Pattern]) -> Pattern:
    """`heads({...})` over stretches of equal patterns, or the one pattern of all heads.

    >>> str(by_head([CAUSAL, CAUSAL, PRIMITIVES["dense"]]))
    'heads({range(0, 2): causal, 2: dense})'
    """
    if all(pattern == patterns[0] for pattern in patterns):
        return patterns[0]
    starts = [n for n, pattern in enumerate(patterns) if n == 0 or pattern != patterns[n - 1]]
    return heads({range(a, b): patterns[a] for a, b in pairwise([*starts, len(patterns)])})


def _head(mask: NDArray[np.bool_], block: tuple[int, int], causal: bool, first: int) -> Pattern:
    above, rest = divmod(first, block[0])
    if rest:
        # Blocks count from position 0; a shift of the transpose moves the rows to where they stand.
        pattern = (blocks.from_mask(mask, block).T >> first).T
    else:
        pattern = blocks.from_mask(np.pad(mask, ((above, 0), (0, 0))), block)
    return CAUSAL & pattern if causal else pattern
