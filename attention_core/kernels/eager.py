"""Run a fused kernel outside its operator: the operator's wrapper costs more host time than a short call's rest.

Whatever looks at operators (a compiler, a tracer, a counter of work, a tensor of another class) gets the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

PLAIN = (Tensor, torch.nn.Parameter)


def nobody_looks(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the inputs are plain tensors and nothing intercepts operators."""
    return (
        not torch.compiler.is_compiling()
        and type(q) in PLAIN
        and type(k) in PLAIN
        and type(v) in PLAIN
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None  # pyright: ignore[reportAttributeAccessIssue]
    )


def attend(
    forward: Callable[..., tuple[Tensor, Tensor]],
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_query: Any,
    by_key: Any,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    """out and lse of `forward(q, k, v, by_query, *rest)`, differentiable once where that is asked for.

    Gradients are `backward(q, k, v, out, lse, dout, dlse, by_query, by_key, *rest)`; dlse may be None.
    """
    wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if wanted or forward_ad._current_level >= 0:  # forward-mode gradients are refused by the Function, not lost
        return _Attend.apply(q, k, v, forward, backward, by_query, by_key, rest)
    return forward(q, k, v, by_query, *rest)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, forward, backward, by_query, by_key, rest):
        out, lse = forward(q, k, v, by_query, *rest)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.backward, ctx.rest = backward, (by_query, by_key, *rest)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        q, k, v, out, lse = ctx.saved_tensors
        dout = torch.zeros_like(out) if dout is None else dout
        if not torch.is_grad_enabled():
            return *ctx.backward(q, k, v, out, lse, dout, dlse, *ctx.rest), None, None, None, None, None
        with torch.no_grad():
            found = ctx.backward(q, k, v, out, lse, dout, dlse, *ctx.rest)
        # A graph of the gradients is wanted: it must not end here unseen.
        return *_Once.apply(*found, q, k, v, dout), None, None, None, None, None


class _Once(torch.autograd.Function):
    """Gradients as they are, which raise when they are differentiated in turn."""

    @staticmethod
    def forward(ctx, dq, dk, dv, *sources):
        return dq, dk, dv

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(
            "fused attention can be differentiated once, got a second time; use backend='reference' for that"
        )
