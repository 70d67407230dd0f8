"""Attention row by row over the keys that a row may see: no masks, no infinities, no tricks."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, mask: np.ndarray, scale: float | None = None) -> tuple[Tensor, Tensor]:
    """(out, lse) under a bool mask [heads or 1, q_len, kv_len]; rows without keys are set by hand."""
    batch, heads, q_len, dim = q.shape
    ratio = heads // k.shape[1]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    rows, sums = [], []
    for b in range(batch):
        for h in range(heads):
            queries, keys, values = q[b, h], k[b, h // ratio], v[b, h // ratio]
            for i in range(q_len):
                seen = np.flatnonzero(mask[h % len(mask), i])
                scores = scale * (keys[seen] @ queries[i])
                total = scores.exp().sum()
                rows.append((scores.exp() / total) @ values[seen] if len(seen) else values.new_zeros(v.shape[3]))
                sums.append(total.log() if len(seen) else queries.new_tensor(-torch.inf))
    nothing = 0 * (q.sum() + k.sum() + v.sum())  # an empty mask leaves gradients, of zero
    out, lse = torch.stack(rows).view(batch, heads, q_len, -1), torch.stack(sums).view(batch, heads, q_len)
    return out + nothing, lse + nothing
