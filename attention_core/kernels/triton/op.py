"""The fused kernels as PyTorch operators: autograd, fake tensors, and no graph break.

A pattern reaches the operators as tensors only, its numbers included, so that a compiled model is
not compiled again when the pattern changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import eager
from ..dropout import Dropout
from .interned import interned
from .launch import attention_backward, attention_forward
from .lists import TileLists


@torch.library.custom_op("pattern_studio::attend", mutates_args=())
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_query: list[Tensor],
    by_key: list[Tensor],
    scale: float,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """out [batch, heads, q_len, value_dim] and lse float32 [batch, heads, q_len]; dropout where there is a seed."""
    dropout = None if seed is None else Dropout(dropout_p, seed)
    return attention_forward(q, k, v, interned(by_query), scale, dropout)


@attend.register_fake
def _(q, k, v, by_query, by_key, scale, dropout_p, seed):
    out = q.new_empty(*q.shape[:3], v.shape[3])
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("pattern_studio::attend_backward", mutates_args=())
def attend_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    by_query: list[Tensor],
    by_key: list[Tensor],
    scale: float,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv; with no `by_key` lists dK and dV are added by atomics."""
    by_key_lists = interned(by_key) if by_key else None
    dropout = None if seed is None else Dropout(dropout_p, seed)
    return attention_backward(q, k, v, out, lse, dout, dlse, interned(by_query), by_key_lists, scale, dropout)


@attend_backward.register_fake
def _(q, k, v, out, lse, dout, dlse, by_query, by_key, scale, dropout_p, seed):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _keep(ctx, inputs, output):
    q, k, v, by_query, by_key, scale, dropout_p, seed = inputs
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, out, lse, seed, *by_query, *by_key)
    ctx.lists, ctx.scale, ctx.dropout_p = len(by_query), scale, dropout_p


def _backward(ctx, dout, dlse):
    q, k, v, out, lse, seed, *lists = ctx.saved_tensors
    by_query, by_key = lists[: ctx.lists], lists[ctx.lists :]
    if dout is None:
        dout = torch.zeros_like(out)
    dq, dk, dv = attend_backward(q, k, v, out, lse, dout, dlse, by_query, by_key, ctx.scale, ctx.dropout_p, seed)
    return dq, dk, dv, [None] * len(by_query), [None] * len(by_key), None, None, None


attend.register_autograd(_backward, setup_context=_keep)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_query: TileLists,
    by_key: TileLists | None,
    scale: float,
    dropout: Dropout | None = None,
) -> tuple[Tensor, Tensor]:
    """Differentiable (once) out and natural-log LSE over the tiles of the lists.

    Called eagerly it runs outside the operator (eager.py).
    """
    if eager.nobody_looks(q, k, v):
        return eager.attend(attention_forward, attention_backward, q, k, v, by_query, by_key, scale, dropout)
    transposed = by_key.tensors() if by_key is not None else []
    p, seed = (0.0, None) if dropout is None else (dropout.p, dropout.seed)
    return attend(q, k, v, by_query.tensors(), transposed, scale, p, seed)
