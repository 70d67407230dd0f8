"""pooled: a tile's score from the mean query and the mean key of its blocks."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from . import programs
from .narrowed import Narrowed
from .tables import kept_table
from .tiling import Tiling, check_lengths

if TYPE_CHECKING:  # Triton is not on every machine
    from .programs.chosen import Rows


@torch.no_grad()
def pooled(
    q: Tensor, k: Tensor, tiling: Tiling, *, scale: float | None = None, lengths: Tensor | None = None
) -> Tensor:
    """Log of each tile's estimated attention mass, from mean-pooled q and k.

    `score[I, J] = scale * mean(q in I) . mean(k in J) + ln(keys in J)`, the logarithm of the mass that J
    would have if all its keys were alike. With key blocks of one token this is the mean query against
    every key.

    Args:
        q: [batch, heads, q_len, head_dim], any floating dtype; k: [batch, kv_heads, kv_len, head_dim].
        tiling: blocks, offset and causality.
        scale: of q.k, by default 1 / sqrt(head_dim).
        lengths: int64 [batch], where items are padded on the right; padding is not read.

    Returns:
        float32 [batch, heads, q_blocks, kv_blocks], comparable within a row; -inf on tiles that are not visible.

    Source: block selection of MInference (Jiang et al., arXiv:2407.02490) and of Quest's and MoBA's kind.

    >>> q = k = torch.eye(4)[None, None] * 8
    >>> pooled(q, k, Tiling.of(q, k, block=2), scale=1.0)[0, 0].round().tolist()
    [[33.0, -inf], [1.0, 33.0]]
    """
    check_lengths(lengths, q)
    # Sums first, counts last: whole-number inputs stay exact, so equal tiles tie whatever the shapes.
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    if programs.multiplied(q, k) and fits_tiling(q, k, tiling):
        return _by_programs(q, k, tiling, factor, lengths)
    real = Narrowed.of_lengths(lengths, tiling)
    rows, queries = block_sums(q, tiling.block[0], real.rows)
    cols, keys = block_sums(k, tiling.block[1], real.keys)
    products = by_group(queries, keys)
    scores = products * factor / (rows[..., None] * cols[..., None, :]) + cols[..., None, :].log()
    return hidden(scores, tiling, lengths)


def _by_programs(q: Tensor, k: Tensor, tiling: Tiling, factor: float, lengths: Tensor | None) -> Tensor:
    """The same by programs; short rows by the one that `choose` takes, so that both see the same scores."""
    from .programs.chosen import fits, scores_of_means
    from .programs.means import means_of_blocks
    from .programs.tile_mass import mass_of_tiles

    (batch, heads), (kv_heads, dim), device = q.shape[:2], k.shape[1::2], q.device
    real = Narrowed.of_lengths(lengths, tiling)
    means, weight = means_of_blocks(q, k, tiling.block, factor, real.rows, real.keys)
    if fits(q, tiling.kv_blocks):
        rows = _rows(tiling, device, lengths) if lengths is not None else kept_table(_rows, tiling, device)
        return scores_of_means(means, weight, (batch, heads, kv_heads), rows)
    asked, told = means.split([batch * heads * tiling.q_blocks, len(weight)])
    begins = torch.arange(tiling.kv_blocks, device=device) * tiling.block[1]
    return mass_of_tiles(
        asked.view(batch, heads, -1, dim), told.view(batch, kv_heads, -1, dim), real.last_rows(tiling, device), 1,
        causal=tiling.causal, step=tiling.block[1], real=None if lengths is None else begins < lengths[:, None],
        weight=weight.view(batch, kv_heads, -1)[:, 0],
    )  # fmt: skip


def _rows(tiling: Tiling, device: torch.device, lengths: Tensor | None = None) -> Rows:
    from .programs.chosen import Rows

    return Rows.of(tiling.visible(device, lengths))


def fits_tiling(q: Tensor, k: Tensor, tiling: Tiling) -> bool:
    """Whether q and k are of one attention call of the tiling's lengths; for others the torch code has its errors."""
    return (
        q.shape[2] == tiling.q_len
        and k.shape[2] == tiling.kv_len
        and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3])
        and q.device == k.device
        and q.shape[1] % k.shape[1] == 0
    )


def block_sums(x: Tensor, size: int, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """Tokens of each block, float32 [1 or batch, 1, blocks], at least 1; their sum [batch, heads, blocks, head_dim].

    x: [batch, heads, tokens, head_dim]; what is not `real`, bool [1 or batch, tokens], adds nothing.
    """
    tokens = x.shape[2]
    blocks = -(-tokens // size)
    if real is None:
        begin = torch.arange(blocks, device=x.device) * size
        count = ((begin + size).clamp(max=tokens) - begin)[None]
    else:
        count = pad(real, (0, -tokens % size)).unflatten(-1, (blocks, size)).sum(-1)
    count = count.clamp(min=1)[:, None].float()
    if programs.served(x):
        from .programs.sums import sums_of_blocks

        return count, sums_of_blocks(x, size, real)
    if real is not None:
        x = torch.where(real[:, None, :, None], x, 0)
    whole = tokens // size * size
    sums = x[:, :, :whole].unflatten(2, (whole // size, size)).sum(3, dtype=torch.float32)
    if whole < tokens:
        sums = torch.cat([sums, x[:, :, whole:].sum(2, keepdim=True, dtype=torch.float32)], 2)
    return count, sums


def by_group(queries: Tensor, keys: Tensor) -> Tensor:
    """Products [batch, heads, rows, cols] in float32, each query head with its KV head, whatever autocast is on."""
    share = queries.shape[1] // keys.shape[1]
    with no_autocast(queries.device):
        return (queries.unflatten(1, (keys.shape[1], share)) @ keys.mT[:, :, None]).flatten(1, 2)


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Products as precise as their inputs, whatever autocast is on around."""
    # torch can say which devices have it (amp.is_autocast_available), but a compiler's trace breaks there.
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def hidden(scores: Tensor, tiling: Tiling, lengths: Tensor | None) -> Tensor:
    """The scores, with -inf where a tile is not visible."""
    return scores.masked_fill(~tiling.visible(scores.device, lengths)[:, None], -math.inf)
