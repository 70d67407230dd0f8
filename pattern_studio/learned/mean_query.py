"""mean_query: a tile's score from the mean query of its rows against each single key."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from . import programs
from .narrowed import Narrowed
from .pooled import block_sums, by_group, fits_tiling
from .tables import kept_table
from .tiling import Tiling, check_lengths


@torch.no_grad()
def mean_query(
    q: Tensor,
    k: Tensor,
    tiling: Tiling,
    *,
    scale: float | None = None,
    lengths: Tensor | None = None,
    narrowed: Narrowed | None = None,
) -> Tensor:
    """Log of each tile's estimated attention mass: `ln sum exp(scale * mean(q in I) . k_j)` over the keys j of J.

    Unlike `pooled` it does not average keys, so one sharp column in a block of keys is seen. Costs
    1 / block_q of a dense q k product, and float32 [batch, heads, q_blocks, kv_len] of memory (none of it on CUDA
    with key blocks of a power of two up to 128 and no masks of pairs or documents). Keys after the
    row's last query count as nothing. Arguments, result and errors as for `pooled`; with key blocks of
    one token the two are the same. `narrowed` is for masks of any kind, in place of `lengths`.

    >>> q = k = torch.eye(4)[None, None] * 8
    >>> mean_query(q, k, Tiling.of(q, k, block=2), scale=1.0)[0, 0].round().tolist()
    [[33.0, -inf], [1.0, 33.0]]
    """
    check_lengths(lengths, q)
    real = Narrowed.of_lengths(lengths, tiling) if narrowed is None else narrowed
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    size = tiling.block[1]
    plain = real.pairs is None and real.docs is None
    if plain and programs.multiplied(q, k) and fits_tiling(q, k, tiling):
        from .programs import grouped_mass, query_means
        from .programs.means import means_of_blocks
        from .programs.tile_mass import fits, mass_of_tiles

        if fits(size):
            if real.rows is None:
                last = kept_table(_last_rows, tiling, q.device)
            else:
                last = real.last_rows(tiling, q.device)
            if query_means.fits(q, tiling.block[0]):
                asked = query_means.means_of_queries(q, tiling.block[0], factor, real.rows)
            else:
                asked, _ = means_of_blocks(q, None, tiling.block, factor, real.rows, None)
                asked = asked.view(*q.shape[:2], -1, q.shape[3])
            if grouped_mass.fits(q.shape[1], k, tiling):
                return grouped_mass.mass_by_group(asked, k, last, size, causal=tiling.causal, real=real.keys)
            return mass_of_tiles(asked, k, last, size, causal=tiling.causal, real=real.keys)
    rows, queries = block_sums(q, tiling.block[0], real.rows)
    if real.keys is not None:
        k = torch.where(real.keys[:, None, :, None], k, 0)
    scores = by_group(queries, k.float()) * factor / rows[..., None]
    fine = Tiling(tiling.q_len, tiling.kv_len, (tiling.block[0], 1), tiling.offset, tiling.causal)
    scores = scores.masked_fill(~real.visible(fine, q.device), -torch.inf)
    scores = pad(scores, (0, -tiling.kv_len % size), value=-torch.inf)
    # A tile holds a pair that takes part where one of its single keys does.
    return scores.unflatten(-1, (tiling.kv_blocks, size)).logsumexp(-1)


def _last_rows(tiling: Tiling, device: torch.device) -> Tensor:
    return Narrowed().last_rows(tiling, device).int()
