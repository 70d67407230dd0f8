"""attend(): attention under a pattern source and a call's conditions, in eager mode and in compiled graphs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pattern_studio.errors import StudioError

from .compiled import attend_pattern, token_mask_of
from .conditions import check_conditions
from .run import run
from .source import PatternSource


def attend(
    source: PatternSource,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: Tensor | None = None,
    docs: Tensor | None = None,
    allowed: Tensor | None = None,
    causal: bool = False,
    q_offset: int | None = None,
    extra: int = 0,
    scale: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """(out, lse) under the source's pattern: q [batch, heads, q_len, head_dim], k and v [batch, kv_heads, kv_len, dim].

    Pairs must also be allowed by `padding` (bool [batch, kv_len], True is padding), `docs` (lengths,
    int64 [1 or batch, documents], on the host), `allowed` (bool [batch or 1, heads or 1, q_len,
    kv_len], True is allowed) and `causal`. `extra` keys at the end are seen by all. Otherwise as
    block_sparse_attention; the seed of `dropout_p` is drawn here from the generator of q's device.
    """
    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.ndim != 4:
            raise StudioError(
                f"{name} must have 4 dimensions [batch, heads, length, dim], got {x.ndim}: {list(x.shape)}"
            )
    check_conditions(q.shape[0], q.shape[1], q.shape[2], k.shape[2] - extra, padding, docs, allowed)
    scale = 1 / math.sqrt(max(q.shape[3], 1)) if scale is None else scale
    seed = torch.randint(2**63 - 1, (1,), device=q.device) if dropout_p else None
    options = (padding, docs, allowed, seed, causal, q_offset, extra, scale, dropout_p, backend, deterministic)
    if torch.compiler.is_compiling():
        return attend_pattern(*_one_dtype(q, k, v), source.number, *options)
    return run(source, q, k, v, *options)


def pattern_mask(
    source: PatternSource,
    shape: tuple[int, int, int, int],
    device: torch.device,
    *,
    padding: Tensor | None = None,
    docs: Tensor | None = None,
    allowed: Tensor | None = None,
    causal: bool = False,
    extra: int = 0,
) -> Tensor:
    """The pairs that attend() would use, bool [batch, heads, q_len, kv_len] = `shape`, `extra` keys included."""
    batch, heads, q_len, kv_len = shape
    check_conditions(batch, heads, q_len, kv_len - extra, padding, docs, allowed)
    return token_mask_of(source.number, *shape, device, padding, docs, allowed, causal, extra)


def _one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast as autocast asks, before the operator, which has the dtypes it is given."""
    if torch.is_autocast_enabled(q.device.type):
        wanted = torch.get_autocast_dtype(q.device.type)
        q, k, v = (x if x.dtype == torch.float64 else x.to(wanted) for x in (q, k, v))
    return q, k, v
