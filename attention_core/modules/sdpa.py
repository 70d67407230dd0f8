"""A plain function for call sites of scaled_dot_product_attention, and one for those of xformers."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

import pattern_studio as ps
from pattern_studio.errors import StudioError

from .attend import attend
from .attention import probability
from .source import PatternSource


def pattern_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    pattern: str | ps.Pattern,
    block: int | tuple[int, int] = 128,
    layer: int | None = None,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention under a pattern: the same arguments, and `pattern`.

    query [batch, heads, q_len, head_dim] (or without heads, or without both), key and value likewise;
    out in the same form. attn_mask is bool, True where a pair may be used, and broadcasts to [batch,
    heads, q_len, kv_len]; a float mask may hold 0 and -inf only. As there, is_causal keeps key <= row,
    counted from 0 on both sides, and takes no attn_mask beside it; the *pattern's* positions are aligned
    at the bottom right, as everywhere here. dropout_p applies whenever it is given. Rows without keys
    give 0. Plans are found again in the cache that modules share.

    Raises StudioError for masks of other values and shapes.

    >>> import torch
    >>> q, k, v = torch.randn(3, 2, 8, 100, 32)
    >>> pattern_attention(q, k, v, is_causal=True, pattern="window(31, 0) | sink(4)", block=16).shape
    torch.Size([2, 8, 100, 32])
    """
    lead = query.shape[:-2]
    if not 2 <= query.ndim <= 4:
        raise StudioError(f"query must have 2 to 4 dimensions [..., q_len, head_dim], got {list(query.shape)}")
    q, k, v = (x.reshape(*(1,) * (4 - x.ndim), *x.shape) for x in (query, key, value))
    if not enable_gqa and q.shape[1] != k.shape[1]:
        raise StudioError(
            f"query has {q.shape[1]} heads and key {k.shape[1]}; give enable_gqa=True to share keys between heads"
        )
    if is_causal and attn_mask is not None:
        raise StudioError("give is_causal=True or an attn_mask, not both: put causality into the mask or the pattern")
    allowed = None if attn_mask is None else _allowed(attn_mask, q, k)
    if is_causal and q.shape[2] != k.shape[2]:  # rows counted from 0: not the pattern's alignment
        ones = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
        allowed, is_causal = ones.tril_()[None, None], False
    out, _ = attend(
        _source(pattern, block, layer),
        q,
        k,
        v,
        allowed=allowed,
        causal=is_causal,
        scale=scale,
        dropout_p=probability(dropout_p),
    )
    return out.reshape(*lead, *out.shape[2:])


def memory_efficient_pattern_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    p: float = 0.0,
    scale: float | None = None,
    *,
    pattern: str | ps.Pattern,
    block: int | tuple[int, int] = 128,
    layer: int | None = None,
) -> Tensor:
    """The call of xformers' memory_efficient_attention: query [batch, q_len, heads, head_dim], key and value likewise.

    `p` is the dropout probability. What xformers passes as attn_bias is here the pattern: its
    LowerTriangularMask is "causal", its local masks are windows.

    >>> import torch
    >>> q, k, v = torch.randn(3, 2, 100, 8, 32)
    >>> memory_efficient_pattern_attention(q, k, v, pattern="causal & window(31, 0)", block=16).shape
    torch.Size([2, 100, 8, 32])
    """
    if query.ndim != 4:
        raise StudioError(f"query must have 4 dimensions [batch, q_len, heads, head_dim], got {list(query.shape)}")
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out = pattern_attention(
        q, k, v, dropout_p=p, scale=scale, enable_gqa=True, pattern=pattern, block=block, layer=layer
    )
    return out.transpose(1, 2)


@lru_cache(maxsize=256)
def _source(pattern: str | ps.Pattern, block: int | tuple[int, int], layer: int | None) -> PatternSource:
    return PatternSource(pattern, block=block, layer=layer)


def _allowed(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        if not mask.is_floating_point() or not bool(((mask == 0) | (mask == -torch.inf)).all()):
            raise StudioError(
                "attn_mask must be bool (True may be used) or floating point with 0 and -inf only; for biases on "
                "scores use BlockSparseMultiheadAttention, which adds them densely"
            )
        mask = mask == 0
    try:
        table = mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
        return table.expand(*table.shape[:2], q.shape[2], k.shape[2])
    except RuntimeError:
        raise StudioError(
            f"attn_mask must broadcast to [batch, heads, q_len, kv_len] = {[*q.shape[:3], k.shape[2]]}, "
            f"got {list(mask.shape)}"
        ) from None
