"""antidiagonal: a tile's score from the pairs on antidiagonals that are a stride apart."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import StudioError
from ..problem import whole
from .pooled import by_group, hidden
from .tiling import Tiling, check_lengths

FAINT = 1e-30  # mass of a visible tile that no sampled pair falls into


@torch.no_grad()
def antidiagonal(
    q: Tensor,
    k: Tensor,
    tiling: Tiling,
    *,
    stride: int = 8,
    scale: float | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Log of each tile's estimated attention mass, from one pair in `stride`, taken along antidiagonals.

    Queries and keys are cut into groups of `stride`. The score of groups (a, b) is the mean of
    `scale * q.k` over the allowed pairs of their antidiagonal, which meets every row, every column and
    both kinds of line (verticals and slashes) that cross the group. A softmax over b, each group weighted by
    its pairs, gives each group's mass; a tile's is the sum over its rows. Costs 1 / stride of a dense
    q k product; stride 1 is exact.

    `stride` must divide both block sizes. Other arguments, result and errors as for `pooled`.

    Source: XAttention (Xu et al., arXiv:2503.16428).

    >>> q = k = torch.eye(4)[None, None] * 8
    >>> antidiagonal(q, k, Tiling.of(q, k, block=2), stride=2)[0, 0].exp().double().round(decimals=3).tolist()
    [[2.0, 0.0], [1.333, 0.667]]
    """
    check_lengths(lengths, q)
    stride = whole("stride", stride, 1)
    if tiling.block[0] % stride or tiling.block[1] % stride:
        raise StudioError(
            f"a stride must divide both block sizes, got {stride} for blocks of {tiling.block}; take a stride that "
            "does, or score single keys with pooled or probes"
        )
    offset, factor = tiling.offset, q.shape[-1] ** -0.5 if scale is None else scale
    queries, q_count = _groups(q, stride, offset, lengths)
    keys, k_count = _groups(k, stride, 0, lengths)
    wide = (x.flatten(-2) for x in (queries, keys.flip(-2)))  # [batch, heads, groups, stride * head_dim]
    sums = by_group(*wide)
    # A pair (t, stride - 1 - t) exists where t < q_count and stride - 1 - t < k_count.
    pairs = (q_count[..., None] + k_count[..., None, :] - stride).clamp(0, stride)
    if tiling.causal:
        a = torch.arange(sums.shape[-2], device=q.device)
        b = torch.arange(sums.shape[-1], device=q.device)
        ahead = offset + (a[:, None] - b) * stride  # i - j of the pair in the middle, roughly
        pairs = torch.where(ahead >= stride - 1, pairs, 0)
        sums, pairs = _near(sums, pairs, queries, keys, q_count, k_count, offset, stride)
    scores = sums * factor / pairs.clamp(min=1) + pairs.log()  # -inf without pairs
    weight = torch.where((pairs > 0).any(-1, keepdim=True), torch.softmax(scores, -1), 0)
    mass = _tiles(weight * q_count[..., None], tiling, stride)
    return hidden(mass.clamp(min=FAINT).log(), tiling, lengths)


def _groups(x: Tensor, stride: int, first: int, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Groups of rows, float32 [batch, heads, groups, stride, head_dim], zero in padding, and how many each has."""
    tokens = x.shape[2]
    at = torch.arange(tokens, device=x.device)
    x = x.float()
    own = torch.full((1,), tokens, device=x.device) if lengths is None else (lengths - first).clamp(0, tokens)
    if lengths is not None:
        x = torch.where(at[:, None] < own[:, None, None, None], x, 0)
    x = pad(x, (0, 0, 0, -tokens % stride))
    groups = x.shape[2] // stride
    count = (own[:, None] - torch.arange(groups, device=x.device) * stride).clamp(0, stride)
    return x.unflatten(2, (groups, stride)), count[:, None]


def _near(sums, pairs, queries, keys, q_count, k_count, offset, stride):
    """Groups that the diagonal cuts: the sum over their allowed pairs alone, so that no future key is read."""
    groups, last = queries.shape[2], keys.shape[2] - 1
    share = queries.shape[1] // keys.shape[1]
    row = torch.arange(groups, device=sums.device)
    step = torch.arange(stride, device=sums.device)
    column = torch.arange(sums.shape[-1], device=sums.device)
    for b in (row + offset // stride, row + offset // stride + 1):
        there = (b >= 0) & (b <= last)
        at = b.clamp(0, max(last, 0))
        key = stride - 1 - step  # of step t
        allowed = (at[:, None] * stride + key <= offset + row[:, None] * stride + step) & there[:, None]
        allowed = allowed & (step < q_count[..., None]) & (key < k_count[..., at][..., None])  # [., 1, groups, stride]
        facing = keys[:, :, at].flip(-2).repeat_interleave(share, 1)
        products = torch.where(allowed, (queries * facing).sum(-1), 0).sum(-1)
        here = (column == at[:, None]) & there[:, None]
        sums = torch.where(here, products[..., None], sums)
        pairs = torch.where(here, allowed.sum(-1)[..., None], pairs)
    return sums, pairs


def _tiles(mass: Tensor, tiling: Tiling, stride: int) -> Tensor:
    """Sums over the groups of each tile, [batch, heads, q_blocks, kv_blocks]."""
    tall, wide = (size // stride for size in tiling.block)
    mass = pad(mass, (0, tiling.kv_blocks * wide - mass.shape[-1], 0, tiling.q_blocks * tall - mass.shape[-2]))
    return mass.unflatten(-1, (tiling.kv_blocks, wide)).sum(-1).unflatten(-2, (tiling.q_blocks, tall)).sum(-2)
