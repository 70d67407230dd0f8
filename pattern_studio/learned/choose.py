"""choose: a content score and the best tiles by it, in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import programs
from .narrowed import Narrowed
from .pooled import fits_tiling, pooled
from .select import rows_of, top_k
from .tiling import Tiling


@torch.no_grad()
def choose(
    score: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    tiling: Tiling,
    density: float,
    *,
    scale: float | None = None,
    sinks: int = 1,
    diagonal: bool = True,
    lengths: Tensor | None = None,
    narrowed: Narrowed | None = None,
) -> Tensor:
    """`top_k` of a content score, the same tiles as by two calls, where the scores themselves are not asked for.

    `pooled` on a GPU takes two programs for it: one reads q and k, the other scores and chooses. They serve q and k
    of half precision, outside a compiler's trace, with rows of up to 1,024 tiles; all else is scored, then chosen.

    Args:
        score: one of `SCORES`, or any function `(q, k, tiling)` of its kind; `scale`, `lengths` and `narrowed`
            are passed on where they are given.
        q, k, tiling, scale, lengths: as for `pooled`.
        density, sinks, diagonal: as for `top_k`.
        narrowed: masks of any kind, in place of `lengths`, for scores that take them, as `mean_query` does.

    Returns:
        bool [batch, heads, q_blocks, kv_blocks], False on tiles that are not visible.

    Raises StudioError as the score and `top_k` do.

    >>> q = k = torch.eye(8)[None, None] * 8
    >>> choose(pooled, q, k, Tiling.of(q, k, block=2), density=0.8)[0, 0].int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    """
    if score is pooled and narrowed is None and programs.multiplied(q, k) and fits_tiling(q, k, tiling):
        from .programs.chosen import chosen_of_means, fits
        from .programs.means import means_of_blocks

        if fits(q, tiling.kv_blocks):
            rows = rows_of(q, tiling, density, sinks, diagonal, lengths)
            real = Narrowed.of_lengths(lengths, tiling)
            factor = q.shape[-1] ** -0.5 if scale is None else scale
            means, weight = means_of_blocks(q, k, tiling.block, factor, real.rows, real.keys)
            return chosen_of_means(means, weight, (q.shape[0], q.shape[1], k.shape[1]), rows)
    masks: dict[str, Any] = {name: x for name, x in (("lengths", lengths), ("narrowed", narrowed)) if x is not None}
    scores = score(q, k, tiling, **masks) if scale is None else score(q, k, tiling, scale=scale, **masks)
    return top_k(scores, tiling, density, sinks=sinks, diagonal=diagonal, **masks)
