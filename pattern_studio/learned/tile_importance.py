"""tile_importance: by how much a text's loss should rise where one tile of one head is left out, to second order."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..capture import Capture, LossGradients
from ..metrics.subject import chosen_layers
from ..problem import block_shape
from .tiling import Tiling


@torch.no_grad()
def tile_importance(
    capture: Capture, gradients: LossGradients, layer: int, block: int | tuple[int, int] = 128
) -> Tensor:
    """Nats summed over the text, [heads, q_blocks, kv_blocks]; float32, or float64 of such a capture.

    Without tile t row i's output o_i, its softmax renormalised, moves by `d_i = (M_i o_i - A_i) / (1 - M_i)`, M_i
    the row's mass in t and A_i what t adds to o_i; by -o_i where the row has no other tile. With g_i the loss's
    gradients by o_i two estimates follow, each a sum over the block's rows: `aimed = mean over draws of (g_i . d_i)^2`,
    which knows the directions that the loss minds, but of one text, and `blind = |d_i|^2 mean |g_i|^2 / head_dim`,
    which only knows how much it minds. The importance is `sqrt(aimed * blind) / 2`. Computed a block of queries at a
    time.

    Args:
        capture: q, k, v of the text that the gradients are of.
        gradients: what `loss_gradients` gives of that text.
        layer: of both.
        block: one number or (block_q, block_k) tokens.

    Raises StudioError for a layer without gradients, or gradients of another text or model.

    Source: the Taylor criterion of Molchanov et al. (arXiv:1906.10771), of pairs removed from a softmax; how well
    it carries over is measured by `python -m benchmarks.fitted_loss`.

    >>> from pattern_studio.capture import bundled
    >>> found = tile_importance(bundled(), LossGradients({20: torch.ones(1, 9, 1024, 64)}), 20, 64)
    >>> found.shape, bool(found[:, 0, 1:].any())
    (torch.Size([9, 16, 16]), False)
    """
    chosen_layers(capture, [layer])
    kept, gradient = capture.layers[layer], gradients.of(capture, layer)
    tiling = Tiling(kept.tokens, kept.tokens, block_shape(block), None, capture.causal)
    dtype = torch.float64 if kept.q.dtype == torch.float64 else torch.float32
    q, k, v = kept.q.to(dtype) * capture.scale, kept.k.to(dtype), kept.v.to(dtype)
    gradient = gradient.to(q.device, dtype)
    out = q.new_zeros(kept.heads, tiling.q_blocks, tiling.kv_blocks)
    share = kept.heads // kept.kv_heads
    for group in range(kept.kv_heads):
        heads = slice(group * share, (group + 1) * share)
        for line in range(tiling.q_blocks):
            first, stop = line * tiling.block[0], min((line + 1) * tiling.block[0], kept.tokens)
            keys = stop if capture.causal else kept.tokens
            scores = q[heads, first:stop] @ k[group, :keys].mT
            if capture.causal:
                scores[..., first:] += torch.full_like(scores[0, :, first:], -torch.inf).triu(1)
            one = _strip(scores.softmax(-1), v[group, :keys], gradient[:, heads, first:stop], tiling.block[1])
            out[heads, line, : one.shape[-1]] = one
    return out


def mean_by_distance(importance: Tensor, tiling: Tiling, kept: Tensor | None = None) -> Tensor:
    """Each tile's mean over the visible tiles that lie as far from their queries, as `importance`.

    The distance is counted in keys, from a key block's first to the query block's first: what is chosen by it is
    a set of diagonals for each head, the same on every text. `importance` [heads, q_blocks, kv_blocks]; `kept`, bool
    [q_blocks, kv_blocks], are tiles that are protected anyway: they stay out of the mean, since a sink, of more
    importance than all others, would lend it to the diagonals that end in it.

    >>> tiling = Tiling(4, 4, 2)
    >>> mean_by_distance(torch.tensor([[[1.0, 0.0], [5.0, 3.0]]]), tiling).tolist()
    [[[2.0, 0.0], [5.0, 2.0]]]
    """
    device = importance.device
    visible = tiling.visible(device)[0]
    query = torch.arange(tiling.q_blocks, device=device)[:, None] * tiling.block[0]
    away = query - torch.arange(tiling.kv_blocks, device=device) * tiling.block[1]
    distance, place = away[visible].unique(return_inverse=True)
    counted = torch.ones_like(visible[visible]) if kept is None else ~kept[visible]
    count = torch.zeros(len(distance), device=device).index_add_(0, place, counted.float()).clamp(min=1)
    sums = importance.new_zeros(len(importance), len(distance))
    sums.index_add_(1, place, importance[:, visible] * counted)
    out = torch.zeros_like(importance)
    out[:, visible] = (sums / count.to(sums.dtype))[:, place]
    return out


def _strip(weights: Tensor, v: Tensor, gradient: Tensor, wide: int) -> Tensor:
    """A query block, [heads, tiles]: weights [heads, rows, keys], v [keys, dim], gradient [draws, heads, rows, dim]."""
    dim, spare = v.shape[-1], -v.shape[0] % wide

    def tiles(x: Tensor) -> Tensor:  # [..., keys] -> [..., tiles], summed
        return pad(x, (0, spare)).unflatten(-1, (-1, wide)).sum(-1)

    dense, mass = weights @ v, tiles(weights)  # [heads, rows, dim], [heads, rows, tiles]
    # Without the tile of most mass little may be left of a row, which a difference from 1 would not show exactly.
    top = torch.zeros_like(mass, dtype=torch.bool).scatter_(-1, mass.argmax(-1, keepdim=True), True)
    others = weights.masked_fill(top.repeat_interleave(wide, -1)[..., : v.shape[0]], 0)
    left = others.sum(-1, keepdim=True)
    without_top = others @ v / torch.where(left > 0, left, 1) - dense  # -dense where it was all that there is
    rest = (1 - mass).masked_fill(top, 1)
    aimed = torch.zeros_like(mass)
    for one in gradient:
        moved = (mass * (one * dense).sum(-1, keepdim=True) - tiles(weights * (one @ v.mT))) / rest
        aimed += torch.where(top, (one * without_top).sum(-1, keepdim=True), moved).square() / len(gradient)
    # |M o - A|^2 without A of every tile: its square comes from the products of the tile's own values.
    own = pad(v, (0, 0, 0, spare)).unflatten(0, (-1, wide))  # [tiles, wide, dim]
    each = pad(weights, (0, spare)).unflatten(-1, (-1, wide))  # [heads, rows, tiles, wide]
    square = (torch.einsum("hrtj,tjl->hrtl", each, own @ own.mT) * each).sum(-1)
    square = square - 2 * mass * tiles(weights * (dense @ v.mT))
    square = (square + (mass * dense.norm(dim=-1, keepdim=True)).square()).clamp(min=0) / rest.square()
    square = torch.where(top, without_top.square().sum(-1, keepdim=True), square)
    blind = square * gradient.square().mean(0).sum(-1, keepdim=True) / dim
    return (aimed.sum(1) * blind.sum(1)).sqrt() / 2
