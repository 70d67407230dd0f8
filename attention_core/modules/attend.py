"""attend(): attention under a pattern source and a call's conditions, in eager mode and in compiled graphs.

Compiled graphs hold one operator for the whole of it. It finds its plan when it runs, from the lengths
and masks that it then meets, so there is no graph break and nothing is compiled again for a pattern
that changes. Its backward computes the forward once more, as activation checkpointing does: between
the two it keeps q, k and v only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.problem import Problem

from ..ops import block_sparse_attention
from ..plan import Plan
from .conditions import check_conditions, read_items
from .dense import token_mask
from .source import PatternSource, source_of


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
    return _run(source, q, k, v, *options)


def pattern_mask(
    source: PatternSource,
    shape: tuple[int, int, int, int],
    device: torch.device,
    *,
    padding: Tensor | None = None,
    allowed: Tensor | None = None,
    causal: bool = False,
    extra: int = 0,
) -> Tensor:
    """The pairs that attend() would use, bool [batch, heads, q_len, kv_len] = `shape`, `extra` keys included."""
    batch, heads, q_len, kv_len = shape
    check_conditions(batch, heads, q_len, kv_len - extra, padding, None, allowed)
    return token_mask_of(source.number, *shape, device, padding, allowed, causal, extra)


@torch.library.custom_op("pattern_studio::token_mask", mutates_args=())
def token_mask_of(
    source: int,
    batch: int,
    heads: int,
    q_len: int,
    kv_len: int,
    device: torch.device,
    padding: Tensor | None,
    allowed: Tensor | None,
    causal: bool,
    extra: int,
) -> Tensor:
    """The operator behind pattern_mask, one for eager mode and compiled graphs."""
    shape = batch, heads, q_len, kv_len
    plan, folded = planned(source_of(source), shape, device, padding, None, allowed, causal, None, extra)
    return token_mask(plan, batch, folded).contiguous()


@token_mask_of.register_fake
def _(source, batch, heads, q_len, kv_len, device, padding, allowed, causal, extra):
    return torch.empty((batch, heads, q_len, kv_len), dtype=torch.bool, device=device)


def planned(
    source: PatternSource,
    shape: tuple[int, int, int, int],
    device: torch.device,
    padding: Tensor | None,
    docs: Tensor | None,
    allowed: Tensor | None,
    causal: bool,
    q_offset: int | None,
    extra: int,
) -> tuple[Plan, bool]:
    """The plan of a call of shape (batch, heads, q_len, kv_len), `extra` included, and whether items became heads."""
    batch, heads, q_len, kv_len = shape
    offset = kv_len - extra - q_len if q_offset is None else q_offset
    problem = Problem(q_len, kv_len, offset, heads)
    # A token mask counts rows from 0; where the queries stand there, a causal one can be named.
    items, is_causal = read_items(batch, padding, docs, allowed, may_name=offset == 0)
    made = source.plan(problem, items, causal=causal or is_causal, extra=extra, device=device)
    return made, len(items) > 1


def _run(
    source: PatternSource,
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
    shape = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    plan, folded = planned(source, shape, q.device, padding, docs, allowed, causal, q_offset, extra)
    return run_plan(plan, folded, q, k, v, scale, dropout_p, seed, backend, deterministic)


def run_plan(
    plan: Plan,
    folded: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    dropout_p: float = 0.0,
    seed: Tensor | None = None,
    backend: str = "auto",
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """(out, lse) [batch, heads, ...] under a plan, whose heads are, where `folded`, those of all items in turn."""
    batch, heads, q_len, _ = q.shape
    if folded:
        q, k, v = (x.reshape(1, -1, *x.shape[2:]) for x in (q, k, v))
    out, lse = block_sparse_attention(
        q,
        k,
        v,
        plan,
        scale=scale,
        return_lse=True,
        backend=backend,
        deterministic=deterministic,
        dropout_p=dropout_p,
        seed=seed,
    )
    if folded:
        out, lse = out.reshape(batch, heads, q_len, out.shape[3]), lse.reshape(batch, heads, q_len)
    return out, lse


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
        return _run(source_of(source), q, k, v, *options)


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
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad(), torch.autocast(q.device.type, enabled=False), _autograd_inside():
        results = _run(source_of(source), *inputs, *options)
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


def _one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast as autocast asks, before the operator, which has the dtypes it is given."""
    if torch.is_autocast_enabled(q.device.type):
        wanted = torch.get_autocast_dtype(q.device.type)
        q, k, v = (x if x.dtype == torch.float64 else x.to(wanted) for x in (q, k, v))
    return q, k, v
