"""What the modules are compared with: float64 attention over token masks, one batch item with its own mask each."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

import pattern_studio as ps


def allowed(text: str, q_len: int, kv_len: int | None = None, heads: int = 1, docs: tuple[int, ...] | None = None):
    """A pattern's token mask, bool tensor [heads, q_len, kv_len], straight from the predicate."""
    problem = ps.Problem(q_len, -1 if kv_len is None else kv_len, heads=heads, docs=docs)
    return torch.from_numpy(np.array(ps.dense_mask(ps.parse(text), problem)))


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """[batch, heads, q_len, dim] in float64; rows without keys 0, by leaving them out of the softmax."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    mask = mask.expand(*q.shape[:3], k.shape[2])
    weights = (q @ k.mT / math.sqrt(q.shape[3])).exp() * mask  # small inputs: no shift is needed
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total) @ v


def close(got: Tensor, wanted: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(got.double(), wanted.double(), rtol=tolerance, atol=tolerance)
