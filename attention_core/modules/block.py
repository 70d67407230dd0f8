"""BlockSparseTransformerBlock: attention under a pattern and a feed-forward part, each beside a residual path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import pattern_studio as ps

from .multihead import BlockSparseMultiheadAttention
from .source import ByProblem


class BlockSparseTransformerBlock(nn.Module):
    """A transformer block: self-attention under a pattern, then two linear layers with GELU between.

    x [batch, length, embed_dim] to the same shape, of any length. `norm_first` puts the layer norms before each
    part (the default, as in GPT-2), else after its residual sum. `dropout` is that of attention
    probabilities and of both parts' results. Other options are BlockSparseMultiheadAttention's.

    Source: Vaswani et al. 2017; pre-norm, Xiong et al. 2020.

    >>> import torch
    >>> block = BlockSparseTransformerBlock(64, 4, pattern="causal & window(31, 0)", block=16)
    >>> block(torch.randn(2, 100, 64)).shape
    torch.Size([2, 100, 64])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        pattern: str | ps.Pattern | ByProblem,
        feedforward_dim: int | None = None,
        dropout: float = 0.0,
        norm_first: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        wide = 4 * embed_dim if feedforward_dim is None else feedforward_dim
        made = {"device": device, "dtype": dtype}
        self.norm_first = norm_first
        self.attention = BlockSparseMultiheadAttention(
            embed_dim, num_heads, dropout=dropout, batch_first=True, pattern=pattern, **made, **options
        )
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(embed_dim, **made), nn.LayerNorm(embed_dim, **made)
        self.feedforward = nn.Sequential(
            nn.Linear(embed_dim, wide, **made), nn.GELU(), nn.Linear(wide, embed_dim, **made)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        docs: Sequence[int] | Sequence[Sequence[int]] | Tensor | None = None,
    ) -> Tensor:
        """x [batch, length, embed_dim]; key_padding_mask bool [batch, length], True is padding; docs are lengths."""
        options: dict[str, Any] = {"key_padding_mask": key_padding_mask, "is_causal": is_causal, "docs": docs}

        def attended(x: Tensor) -> Tensor:
            out, _ = self.attention(x, x, x, need_weights=False, **options)
            return self.dropout(out)

        if self.norm_first:
            x = x + attended(self.attention_norm(x))
            return x + self.dropout(self.feedforward(self.feedforward_norm(x)))
        x = self.attention_norm(x + attended(x))
        return self.feedforward_norm(x + self.dropout(self.feedforward(x)))
