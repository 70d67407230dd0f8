"""merge: attention over parts of the keys, joined into attention over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..kernels.fused import INSTALLED


def merge(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(out, lse) over disjoint sets of keys from the (out, lse) of each set. Differentiable.

    Shapes: out [batch, heads, q_len, value_dim]; lse [batch, heads, q_len], natural logarithms. Each
    part weighs `exp(lse - total)`; sums are taken in lse's dtype. A row that no part has keys for
    gives out 0 and lse -inf, with zero gradients.

    Source: the merging of FlashDecoding and ring attention (Liu et al. 2023, arXiv:2310.01889).

    >>> row = torch.ones(1, 1, 1, 2)
    >>> out, lse = merge([(row, torch.zeros(1, 1, 1)), (3 * row, torch.zeros(1, 1, 1))])
    >>> out.flatten().tolist(), round(lse.item(), 4)
    ([2.0, 2.0], 0.6931)
    """
    if len(parts) == 1:
        return parts[0]
    if parts[0][0].is_cuda and parts[0][1].dtype == torch.float32 and INSTALLED:
        from ..kernels.triton.merge_parts import merge_parts  # here: Triton is not installed everywhere

        return merge_parts([out for out, _ in parts], [lse for _, lse in parts])
    return plain(parts)


def plain(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """`merge` in plain torch, on any device and in any dtype."""
    sums = torch.stack([lse for _, lse in parts])  # [parts, batch, heads, q_len]
    empty = (sums == -torch.inf).all(0)
    # Neither logsumexp nor exp sees a row of -inf: their gradients there would be NaN.
    total = torch.logsumexp(torch.where(empty, 0.0, sums), 0)
    weights = torch.where(empty, 0.0, torch.exp(sums - total))
    out = torch.zeros_like(parts[0][0], dtype=weights.dtype)
    for weight, (part, _) in zip(weights, parts, strict=True):
        out = out + weight[..., None] * part
    return out.to(parts[0][0].dtype), torch.where(empty, -torch.inf, total)
