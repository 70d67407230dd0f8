"""projection: query, key and value through nn.MultiheadAttention's own weights, split into heads."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def projected(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [batch, heads, length, head_dim] of inputs [batch, length, features], batch first."""
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    if module.in_proj_weight is None:
        weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    elif query is key and key is value:
        made = functional.linear(query, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
        q, k, v = (heads_of(module, x) for x in made)
        return q, k, v
    else:
        weights = module.in_proj_weight.chunk(3)
    inputs = zip((query, key, value), weights, biases, strict=True)
    q, k, v = (heads_of(module, functional.linear(x, w, b)) for x, w, b in inputs)
    return q, k, v


def heads_of(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """[batch, length, embed_dim] as [batch, heads, length, head_dim]."""
    return x.unflatten(-1, (module.num_heads, module.head_dim)).transpose(1, 2)
