"""BlockSparseMultiheadAttention: nn.MultiheadAttention, under a pattern."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import pattern_studio as ps
from pattern_studio.errors import StudioError

from .adapting import Adaptive
from .attend import attend, pattern_mask
from .conditions import document_table
from .dense import check_cells, dense_attention
from .masks import Masks, read_masks
from .plan_cache import PlanCache
from .projection import heads_of, projected
from .source import ByProblem, PatternSource
from .stats import PerformanceMonitor


class BlockSparseMultiheadAttention(Adaptive, nn.MultiheadAttention):
    """nn.MultiheadAttention that looks only at the pairs of a pattern.

    Arguments, parameters, state_dict, inputs, masks and results are those of nn.MultiheadAttention, so
    either loads the other's weights, and under `pattern="dense"` both compute the same. `pattern` is a
    Pattern, its text, or a SparsePatternConfig; `block` the tile, one number or (block_q, block_k) in
    tokens; `layer` what patterns take that differ by layer; `backend` and `deterministic` are those of
    block_sparse_attention. Lengths are any, without padding. Masks narrow the pattern.

    What differs: there is no fast path that goes around this module, in this class or in
    nn.TransformerEncoderLayer. A query that is left without keys gives `out_proj.bias`, weights 0 and
    finite gradients, where nn.MultiheadAttention gives NaN. `is_causal=True` needs no attn_mask, and
    then keeps keys at or before each query, the last query level with the last key; with an attn_mask
    it adds nothing, the mask is obeyed as it is. A bool mask, or a float mask of 0 and -inf, is run by
    tiles. Other float masks are added to the scores as they should be, and `need_weights=True`
    (nn.MultiheadAttention's default) returns true probabilities: both take memory for all pairs, and
    raise StudioError where those would be more than 2**30. With `add_bias_kv` and `add_zero_attn` the
    added keys are seen by every query; a pattern that draws among keys (random) counts them.
    `set_adaptive()` chooses tiles from each call's own q and k instead, without more parameters.

    >>> import torch
    >>> attention = BlockSparseMultiheadAttention(64, 4, pattern="window(15, 15)", block=16, batch_first=True)
    >>> x = torch.randn(2, 100, 64)
    >>> out, _ = attention(x, x, x, need_weights=False)
    >>> out.shape
    torch.Size([2, 100, 64])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        pattern: str | ps.Pattern | ByProblem,
        block: int | tuple[int, int] = 128,
        layer: int | None = None,
        backend: str = "auto",
        deterministic: bool = False,
        plan_cache: PlanCache | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            dropout=dropout,
            bias=bias,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        # nn.TransformerEncoderLayer and nn.TransformerEncoder ask for this before they go around a module's forward.
        self._qkv_same_embed_dim = False
        self.source = PatternSource(pattern, block=block, layer=layer, cache=plan_cache)
        self.performance_monitor = PerformanceMonitor()
        self.backend, self.deterministic = backend, deterministic

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        docs: Sequence[int] | Sequence[Sequence[int]] | Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(output, weights), shapes and meaning of nn.MultiheadAttention; weights are None unless asked for.

        query [q_len, batch, embed_dim], or [batch, q_len, embed_dim] with batch_first, or [q_len,
        embed_dim]; weights [batch, q_len, kv_len], or [batch, heads, q_len, kv_len] when not averaged.
        docs, which nn.MultiheadAttention doesn't have, are lengths of documents packed one after another,
        adding up to kv_len, for all items or for each: the pattern is used inside each of them.
        """
        options: dict[str, Any] = {
            "key_padding_mask": key_padding_mask,
            "need_weights": need_weights,
            "attn_mask": attn_mask,
            "average_attn_weights": average_attn_weights,
            "is_causal": is_causal,
            "docs": docs,
            "training": self.training,
        }
        if self.performance_monitor.enabled and not torch.compiler.is_compiling():
            along = 1 if self.batch_first and query.ndim == 3 else 0
            with self.performance_monitor.measured(query.device, query.shape[along], key.shape[along]):
                return self._forward(self.source, query, key, value, **options)[:2]
        return self._forward(self.source, query, key, value, **options)[:2]

    def _compute(self, source: PatternSource, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor]:
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")
        given: dict[str, Any] = dict(zip((*names, "is_causal"), inputs, strict=False)) | options
        defaults: dict[str, Any] = {
            "is_causal": False,
            "docs": None,
            "key_padding_mask": None,
            "attn_mask": None,
            "average_attn_weights": True,
        }
        given = defaults | given | {"need_weights": False}
        out, _, lse = self._forward(source, **given, training=False)
        return out, lse

    def _forward(
        self,
        source: PatternSource,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        average_attn_weights: bool,
        is_causal: bool,
        docs: Sequence[int] | Sequence[Sequence[int]] | Tensor | None,
        training: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        self._check(query, key, value)
        batched, alike = query.ndim == 3, query is key
        if not batched:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        (batch, q_len), kv_len = query.shape[:2], key.shape[1]
        masks = read_masks(attn_mask, key_padding_mask, batch, self.num_heads, q_len, kv_len)
        q, k, v = projected(self, query, key, value)
        k, v, extra = self._with_extra_keys(k, v)
        causal = is_causal and attn_mask is None
        dropout = self.dropout if training else 0.0
        documents = document_table(docs)
        if source is self.source and self.adaptive and batch and q_len and kv_len:  # else there is nothing to choose
            self._check_adaptive(extra)
            inputs = q, k, v, masks, documents, causal, alike, need_weights, dropout
            # torch leaves the type of a disabled method open
            out, weights, lse = self._attend_chosen(*inputs)  # pyright: ignore[reportCallIssue]
        elif need_weights or masks.bias is not None:
            out, weights, lse = self._dense(source, q, k, v, masks, documents, causal, extra, dropout)
        else:
            out, lse = attend(
                source,
                q,
                k,
                v,
                padding=masks.padding,
                docs=documents,
                allowed=masks.allowed,
                causal=causal,
                extra=extra,
                dropout_p=dropout,
                backend=self.backend,
                deterministic=self.deterministic,
            )
            weights = None
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = self._weights(weights, q, average_attn_weights) if need_weights and weights is not None else None
        if not batched:
            out, weights = out[0], None if weights is None else weights[0]
        elif not self.batch_first:
            out = out.transpose(0, 1)
        return out, weights, lse

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.is_nested or key.is_nested or value.is_nested:
            raise StudioError(
                "nested tensors are not served: pad them and give key_padding_mask; where nn.TransformerEncoder makes "
                "them, make it with enable_nested_tensor=False"
            )
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            raise StudioError(
                "query, key and value must all have 3 dimensions, or all 2 without a batch, got "
                f"{query.ndim}, {key.ndim} and {value.ndim}"
            )
        for name, x, size in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if x.shape[-1] != size:
                raise StudioError(f"{name} must have {size} features, got {x.shape[-1]}: {list(x.shape)}")
        if key.shape[:-1] != value.shape[:-1]:
            raise StudioError(f"key and value must be equally many, got {list(key.shape)} and {list(value.shape)}")

    def _with_extra_keys(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Keys and values with what add_bias_kv and add_zero_attn put at their end, and how many that is."""
        extra = 0
        if self.bias_k is not None and self.bias_v is not None:
            more_k, more_v = (
                heads_of(self, b).to(k.dtype).expand(len(k), -1, -1, -1) for b in (self.bias_k, self.bias_v)
            )
            k, v, extra = torch.cat([k, more_k], 2), torch.cat([v, more_v], 2), extra + 1
        if self.add_zero_attn:
            zero = k.new_zeros(*k.shape[:2], 1, k.shape[3])
            k, v, extra = torch.cat([k, zero], 2), torch.cat([v, zero], 2), extra + 1
        return k, v, extra

    def _dense(
        self,
        source: PatternSource,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        masks: Masks,
        docs: Tensor | None,
        causal: bool,
        extra: int,
        dropout: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        shape = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
        check_cells(
            *shape, "need_weights=True" if masks.bias is None else "a float mask of other values than 0 and -inf"
        )
        allowed = pattern_mask(
            source,
            shape,
            q.device,
            padding=masks.padding,
            docs=docs,
            allowed=masks.allowed,
            causal=causal,
            extra=extra,
        )
        bias = None if masks.bias is None else functional.pad(masks.bias, (0, extra))
        return dense_attention(q, k, v, allowed, bias, dropout, 1 / math.sqrt(self.head_dim))

    def _weights(self, weights: Tensor, q: Tensor, average: bool) -> Tensor:
        # On CUDA, autocast leaves nn.MultiheadAttention's softmax in float32.
        weights = weights if q.is_cuda and torch.is_autocast_enabled("cuda") else weights.to(q.dtype)
        return weights.mean(1) if average else weights

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._qkv_same_embed_dim = False

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, {self.source.given}, block={self.source.block}"
