"""The operators that compiled graphs hold: one for the whole of attend(), one for a pattern's token mask.

They find their plan when they run, from the lengths and masks that they then meet, so there is no graph
break and nothing is compiled again for a pattern that changes. The backward computes the forward once
more, as activation checkpointing does: between the two it keeps q, k and v only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .dense import token_mask
from .run import planned, run
from .source import source_of


@torch.library.custom_op("pattern_studio::token_mask", mutates_args=())
def token_mask_of(
    source: int,
    batch: int,
    heads: int,
    q_len: int,
    kv_len: int,
    device: torch.device,
    padding: Tensor | None,
    docs: Tensor | None,
    allowed: Tensor | None,
    causal: bool,
    extra: int,
) -> Tensor:
    """The operator behind pattern_mask, one for eager mode and compiled graphs."""
    shape = batch, heads, q_len, kv_len
    plan, folded = planned(source_of(source), shape, device, padding, docs, allowed, causal, None, extra)
    return token_mask(plan, batch, folded).contiguous()


@token_mask_of.register_fake
def _(source, batch, heads, q_len, kv_len, device, padding, docs, allowed, causal, extra):
    return torch.empty((batch, heads, q_len, kv_len), dtype=torch.bool, device=device)


@torch.library.custom_op("pattern_studio::attend_pattern", mutates_args=())
def attend_pattern(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source: int,
    padding: Tensor | None,
    docs: Tensor | None,
    allowed: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    q_offset: int | None,
    extra: int,
    scale: float,
    dropout_p: float,
    backend: str,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """The operator that compiled graphs hold."""
    options = (padding, docs, allowed, seed, causal, q_offset, extra, scale, dropout_p, backend, deterministic)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        return run(source_of(source), q, k, v, *options)


@attend_pattern.register_fake
def _(q, k, v, *_):
    lse = q.new_empty(q.shape[:3], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
    return q.new_empty(*q.shape[:3], v.shape[3]), lse


@torch.library.custom_op("pattern_studio::attend_pattern_backward", mutates_args=())
def attend_pattern_backward(
    d_out: Tensor | None,
    d_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source: int,
    padding: Tensor | None,
    docs: Tensor | None,
    allowed: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    q_offset: int | None,
    extra: int,
    scale: float,
    dropout_p: float,
    backend: str,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv, by running the forward again."""
    options = (padding, docs, allowed, seed, causal, q_offset, extra, scale, dropout_p, backend, deterministic)
    inputs = tuple(x.detach().requires_grad_() for x in (q, k, v))
    with torch.enable_grad(), torch.autocast(q.device.type, enabled=False), _autograd_inside():
        results = run(source_of(source), inputs[0], inputs[1], inputs[2], *options)
        given = [(x, d) for x, d in zip(results, (d_out, d_lse), strict=True) if d is not None]
        found = torch.autograd.grad([x for x, _ in given], inputs, [d for _, d in given])
    # An operator returns memory of its own, laid out as its fake says.
    dq, dk, dv = (d.clone(memory_format=torch.contiguous_format) for d in found)
    return dq, dk, dv


@attend_pattern_backward.register_fake
def _(d_out, d_lse, q, k, v, *_):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _keep(ctx, inputs, output):
    q, k, v, source, padding, docs, allowed, seed, *numbers = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, padding, docs, allowed, seed)
    ctx.source, ctx.numbers = source, numbers


def _backward(ctx, d_out, d_lse):
    q, k, v, *tensors = ctx.saved_tensors
    if d_out is None and d_lse is None:
        return (None,) * 15
    return *attend_pattern_backward(d_out, d_lse, q, k, v, ctx.source, *tensors, *ctx.numbers), *(None,) * 12


attend_pattern.register_autograd(_backward, setup_context=_keep)


@contextmanager
def _autograd_inside() -> Iterator[None]:
    """Let autograd record inside an operator, where the dispatcher has already gone past it."""
    keys = torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys]
    for key in keys:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        for key, excluded in zip(keys, before, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)
