"""BlockSparseAttention: softmax attention under a pattern, for q, k and v, at any lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import pattern_studio as ps
from pattern_studio.errors import StudioError

from .attend import attend
from .conditions import document_table
from .plan_cache import PlanCache
from .reporting import Reporting
from .source import ByProblem, PatternSource
from .stats import PerformanceMonitor


class BlockSparseAttention(Reporting, nn.Module):
    """Attention over exactly the pairs that a pattern allows; it has no parameters.

    `pattern` is a Pattern, its text, or a SparsePatternConfig; `heads({...})` gives heads patterns of
    their own, `layers({...})` takes the `layer`. `block` is the tile, one number or (block_q, block_k)
    in tokens. `dropout` is the probability with which attention probabilities are dropped in training.
    `scale`, `backend` and `deterministic` are block_sparse_attention's. Plans are made at the first
    call for each length and kept in `plan_cache`, by default one for the whole process.

    >>> import torch
    >>> attention = BlockSparseAttention("causal & (window(31, 0) | sink(4))", block=16)
    >>> q, k, v = torch.randn(3, 2, 8, 100, 32)
    >>> attention(q, k, v).shape
    torch.Size([2, 8, 100, 32])
    """

    def __init__(
        self,
        pattern: str | ps.Pattern | ByProblem,
        *,
        block: int | tuple[int, int] = 128,
        layer: int | None = None,
        dropout: float = 0.0,
        scale: float | None = None,
        backend: str = "auto",
        deterministic: bool = False,
        plan_cache: PlanCache | None = None,
    ) -> None:
        super().__init__()
        self.source = PatternSource(pattern, block=block, layer=layer, cache=plan_cache)
        self.performance_monitor = PerformanceMonitor()
        self.dropout = probability(dropout)
        self.scale, self.backend, self.deterministic = scale, backend, deterministic

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        docs: Sequence[int] | Sequence[Sequence[int]] | Tensor | None = None,
        allowed: Tensor | None = None,
        is_causal: bool = False,
        q_offset: int | None = None,
    ) -> Tensor:
        """out [batch, heads, q_len, value_dim] in the inputs' dtype.

        query [batch, heads, q_len, head_dim]; key [batch, kv_heads, kv_len, head_dim]; value [batch,
        kv_heads, kv_len, value_dim]; heads a whole multiple of kv_heads. key_padding_mask is bool
        [batch, kv_len], True where a key is padding, as in nn.MultiheadAttention. docs are lengths of
        documents packed one after another, adding up to kv_len, for all items or for each: a pattern
        that doesn't speak of documents is used inside each of them. Both reach the kernel as tiles and
        bands. allowed is bool [batch or 1, heads or 1, q_len, kv_len], True where a pair may be used.
        is_causal keeps only keys at or before the query's position, row + q_offset; q_offset defaults
        to kv_len - q_len. All of these narrow the pattern. Rows that are left without keys give 0.
        """
        options: dict[str, Any] = {
            "key_padding_mask": key_padding_mask,
            "docs": docs,
            "allowed": allowed,
            "is_causal": is_causal,
            "q_offset": q_offset,
            "dropout": self.training,
        }
        if self.performance_monitor.enabled and not torch.compiler.is_compiling():
            with self.performance_monitor.measured(query.device, query.shape[-2], key.shape[-2]):
                return self._compute(self.source, query, key, value, **options)[0]
        return self._compute(self.source, query, key, value, **options)[0]

    def _compute(
        self,
        source: PatternSource,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        docs: Sequence[int] | Sequence[Sequence[int]] | Tensor | None = None,
        allowed: Tensor | None = None,
        is_causal: bool = False,
        q_offset: int | None = None,
        dropout: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return attend(
            source,
            query,
            key,
            value,
            padding=key_padding_mask,
            docs=document_table(docs),
            allowed=allowed,
            causal=is_causal,
            q_offset=q_offset,
            scale=self.scale,
            dropout_p=self.dropout if dropout else 0.0,
            backend=self.backend,
            deterministic=self.deterministic,
        )

    def extra_repr(self) -> str:
        return f"{self.source.given}, block={self.source.block}"


def probability(dropout: float) -> float:
    """A dropout probability from 0 up to, but not including, 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise StudioError(f"dropout must be a probability from 0 to below 1, got {dropout!r}")
    return float(dropout)
