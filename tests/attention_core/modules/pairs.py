"""nn.MultiheadAttention and ours with the same weights, and what is compared of them."""

from __future__ import annotations

import torch
from torch import nn

from attention_core.modules.multihead import BlockSparseMultiheadAttention

from ..inputs import normal
from . import oracle


def pair(
    *args, pattern: str = "dense", block=16, **options
) -> tuple[nn.MultiheadAttention, BlockSparseMultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(*args, **options)
    ours = BlockSparseMultiheadAttention(*args, **options, pattern=pattern, block=block)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def outcome(module, *inputs, **options):
    """Output, weights, and the gradients of all parameters under a fixed upstream gradient."""
    out, weights = module(*inputs, **options)
    loss = (out * normal(*out.shape, seed=5, dtype=out.dtype)).sum()
    if weights is not None:
        loss = loss + (weights * normal(*weights.shape, seed=6, dtype=weights.dtype)).sum()
    return (
        out,
        weights,
        dict(zip(dict(module.named_parameters()), torch.autograd.grad(loss, [*module.parameters()]), strict=True)),
    )


def projected(module, x):
    """q, k, v of a self-attention, float64 [batch, heads, length, head_dim]."""
    packed = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    return [t.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for t in packed]


def reference(module, x, mask):
    out = oracle.attention(*projected(module, x), mask).transpose(1, 2).flatten(2)
    return nn.functional.linear(out, module.out_proj.weight, module.out_proj.bias)
