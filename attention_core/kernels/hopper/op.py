"""The Hopper kernels as a PyTorch operator: autograd, fake tensors, and no graph break.

As in the portable kernels' op.py a pattern reaches the operator as tensors only. Backwards that are not
built here are the portable kernels', by the rule `serves.unserved_backward`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import eager
from ..dropout import Dropout
from ..triton import launch as portable
from ..triton.interned import interned
from ..triton.lists import TileLists
from .launch import attention_forward
from .launch_backward import attention_backward, pays_to_add
from .serves import unserved_backward


@torch.library.custom_op("pattern_studio::attend_hopper", mutates_args=())
def attend_hopper(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_query: list[Tensor],
    by_key: list[Tensor],
    scale: float,
    deterministic: bool,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """out [batch, heads, q_len, head_dim] and lse float32 [batch, heads, q_len]; dropout where there is a seed."""
    return _forward(q, k, v, interned(by_query), scale, deterministic, _dropout(dropout_p, seed))


@attend_hopper.register_fake
def _(q, k, v, by_query, by_key, scale, deterministic, dropout_p, seed):
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("pattern_studio::attend_hopper_backward", mutates_args=())
def attend_hopper_backward(
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
    deterministic: bool,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv; with no `by_key` lists dK and dV are added by atomics."""
    by_key_lists = interned(by_key) if by_key else None
    dropout = _dropout(dropout_p, seed)
    return _gradients(q, k, v, out, lse, dout, dlse, interned(by_query), by_key_lists, scale, deterministic, dropout)


@attend_hopper_backward.register_fake
def _(q, k, v, out, lse, dout, dlse, by_query, by_key, scale, deterministic, dropout_p, seed):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _dropout(p: float, seed: Tensor | None) -> Dropout | None:
    return None if seed is None else Dropout(p, seed)


def _gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    by_query: TileLists,
    by_key: TileLists | None,
    scale: float,
    deterministic: bool,
    dropout: Dropout | None,
) -> tuple[Tensor, Tensor, Tensor]:
    if unserved_backward((by_query.block_q, by_query.block_k), by_key is not None) is None:
        deterministic = deterministic or not pays_to_add(by_query, q.shape[3])
        return attention_backward(
            q, k, v, out, lse, dout, dlse, by_query, by_key, scale, deterministic, dropout=dropout
        )  # fmt: skip
    return portable.attention_backward(q, k, v, out, lse, dout, dlse, by_query, by_key, scale, dropout)


def _keep(ctx, inputs, output):
    q, k, v, by_query, by_key, scale, deterministic, dropout_p, seed = inputs
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, out, lse, seed, *by_query, *by_key)
    ctx.lists, ctx.rest = len(by_query), (scale, deterministic, dropout_p)


def _backward(ctx, dout, dlse):
    q, k, v, out, lse, seed, *lists = ctx.saved_tensors
    by_query, by_key = lists[: ctx.lists], lists[ctx.lists :]
    dout = torch.zeros_like(out) if dout is None else dout
    dq, dk, dv = attend_hopper_backward(q, k, v, out, lse, dout, dlse, by_query, by_key, *ctx.rest, seed)
    return dq, dk, dv, [None] * len(by_query), [None] * len(by_key), None, None, None, None


attend_hopper.register_autograd(_backward, setup_context=_keep)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_query: TileLists,
    by_key: TileLists | None,
    scale: float,
    deterministic: bool = False,
    dropout: Dropout | None = None,
) -> tuple[Tensor, Tensor]:
    """Differentiable (once) out and natural-log LSE over the tiles of the lists; eager calls skip the operator."""
    if eager.nobody_looks(q, k, v):
        return eager.attend(_forward, _gradients, q, k, v, by_query, by_key, scale, deterministic, dropout)
    transposed = by_key.tensors() if by_key is not None else []
    p, seed = (0.0, None) if dropout is None else (dropout.p, dropout.seed)
    return attend_hopper(q, k, v, by_query.tensors(), transposed, scale, deterministic, p, seed)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, by_query: TileLists, scale: float, deterministic: bool, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    return attention_forward(q, k, v, by_query, scale, dropout=dropout)  # repeatable either way
