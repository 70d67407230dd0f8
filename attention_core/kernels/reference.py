"""The oracle: dense attention under an explicit mask, in the plainest torch there is.

Memory is O(heads * q_len * kv_len). It computes in float32, or in float64 when given float64, and
leaves the backward to autograd. This file is the specification; faster kernels never import it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .dropout import Dropout
from .runs import KeyRuns


def dense_mask(runs: KeyRuns) -> Tensor:
    """Token mask of every head, bool [heads, q_len, kv_len], on the device of `runs`."""
    out = torch.zeros(runs.groups, runs.q_len, runs.kv_len, dtype=torch.bool)
    indptr, first, key_ptr = runs.indptr.tolist(), runs.first.tolist(), runs.key_ptr.tolist()
    low, high, mask, masks = runs.low.tolist(), runs.high.tolist(), runs.mask.tolist(), runs.masks.cpu()
    for line in range(len(indptr) - 1):
        group, q_block = divmod(line, runs.q_blocks)
        i = torch.arange(q_block * runs.block_q, min((q_block + 1) * runs.block_q, runs.q_len))[:, None]  # [rows, 1]
        for r in range(indptr[line], indptr[line + 1]):
            j = torch.arange(first[r], first[r] + key_ptr[r + 1] - key_ptr[r])  # [keys]
            allowed = (j - i >= low[r]) & (j - i <= high[r])  # [rows, keys]
            if mask[r] >= 0:
                bit = i % runs.block_q
                allowed &= (masks[mask[r], j % runs.block_k, bit // 8] >> bit % 8 & 1).bool()
            out[group, i, j] = allowed
    return out[runs.host_head_group].to(runs.indptr.device)


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, dropout: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """Attention over the pairs that `mask` allows: (out, lse), differentiable in q, k, v.

    q [batch, heads, q_len, head_dim]; k [batch, kv_heads, kv_len, head_dim]; v [batch, kv_heads,
    kv_len, value_dim]; mask bool [heads or 1, q_len, kv_len]. Query head h reads key head
    h // (heads // kv_heads). out has q's dtype; lse [batch, heads, q_len] is the natural logarithm,
    float64 for float64 and float32 otherwise. A row without keys gives out 0, lse -inf and zero
    gradients. A key that no row of its head is allowed takes no part, whatever it holds. `dropout`
    acts on the probabilities that weight the values; lse is that of all allowed keys.
    """
    with torch.autocast(q.device.type, enabled=False):  # it would take the products below to half precision
        return _attention(q, k, v, mask, scale, dropout)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    used = mask.any(-2)[..., None]  # [heads or 1, kv_len, 1]
    empty = ~mask.any(-1)  # [heads or 1, q_len]

    copies = q.shape[1] // k.shape[1]
    keys = k.to(dtype).repeat_interleave(copies, 1)  # [batch, heads, kv_len, head_dim]
    values = v.to(dtype).repeat_interleave(copies, 1)
    # Without this 0 * NaN from a key that nobody may see would reach the output or dq.
    keys, values = keys.where(used, 0), values.where(used, 0)
    queries = q.to(dtype).masked_fill(empty[..., None], 0)  # likewise for the gradient of a row without keys

    scores = scale * queries @ keys.mT  # [batch, heads, q_len, kv_len]
    scores = scores.masked_fill(~mask, -torch.inf)
    # The gradient of a softmax over nothing is NaN even where it is not used: give it something.
    scores = scores.masked_fill(empty[..., None], 0)
    p = scores.softmax(-1)
    if dropout is not None:
        place = (torch.arange(n, device=q.device) for n in scores.shape)
        batch, head, row, key = torch.meshgrid(*place, indexing="ij")
        p = p * dropout.weights(batch, head, row, key, dtype)
    out = (p @ values).masked_fill(empty[..., None], 0)
    lse = scores.logsumexp(-1).masked_fill(empty, -torch.inf)
    return out.to(q.dtype), lse
