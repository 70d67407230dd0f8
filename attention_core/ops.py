"""block_sparse_attention(): validate the inputs, choose a kernel, run it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Literal, overload

import torch
from torch import Tensor

from pattern_studio.errors import StudioError

from .kernels import blocked, fused, reference
from .kernels.dropout import Dropout
from .kernels.eager import nobody_looks
from .kernels.hopper import serves as hopper
from .kernels.runs import KeyRuns
from .kernels.triton.lists import TileLists
from .plan import Plan

BACKENDS = ("hopper", "triton", "blocked", "reference")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
REFERENCE_CELLS = 2**30  # scores that the dense reference may build
KINDS = 64  # of calls that a plan remembers to have checked


@overload
def block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    *,
    scale: float | None = None,
    return_lse: Literal[False] = False,
    backend: str = "auto",
    deterministic: bool = False,
    dropout_p: float = 0.0,
    seed: int | Tensor | None = None,
) -> Tensor: ...


@overload
def block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    *,
    scale: float | None = None,
    return_lse: Literal[True],
    backend: str = "auto",
    deterministic: bool = False,
    dropout_p: float = 0.0,
    seed: int | Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...


def block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    *,
    scale: float | None = None,
    return_lse: bool = False,
    backend: str = "auto",
    deterministic: bool = False,
    dropout_p: float = 0.0,
    seed: int | Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention over exactly the pairs that the plan's layout allows.

    Shapes: q [batch, heads, q_len, head_dim]; k [batch, kv_heads, kv_len, head_dim]; v [batch,
    kv_heads, kv_len, value_dim]; any strides. heads is a whole multiple of kv_heads, and query head
    h reads key head h // (heads // kv_heads). The lengths are the plan's; so are the heads, unless
    it was lowered for one head, which serves all.

    Dtypes: float16, bfloat16, float32 or float64, one for all three. Under autocast all are cast to
    its dtype first (float64 stays, as everywhere in torch). Half precision is summed in float32.

    Returns out [batch, heads, q_len, value_dim] in the inputs' dtype or, with `return_lse`, (out,
    lse): lse [batch, heads, q_len] is the natural logarithm of each row's sum over allowed keys of
    exp(scale * q.k), in float64 for float64 and float32 otherwise. Both are differentiable. `scale`
    defaults to 1 / sqrt(head_dim). A row without keys gives out 0, lse -inf and zero gradients.
    Nothing at or beyond kv_len is read, and a key that no query of a query block is allowed never
    reaches that block, even if it holds NaN.

    Backends: "triton" (fused, on CUDA, float16, bfloat16 and float32, head dims up to 256, block_q 16
    to 256), "hopper" (fused, for compute capability 9.0 alone, float16 and bfloat16, head dims 64 and
    128, block_q 128 and 256, block_k a multiple of 8), "blocked" (plain torch, any device, cost follows
    the active tiles), all differentiable once; "reference" (dense, the specification, small inputs
    only). "auto" takes the first of "hopper", "triton" and "blocked" that serves the inputs. With
    `deterministic=True` gradients are bitwise repeatable; without it they may be, where that is not slower.

    `dropout_p`, at least 0 and below 1, drops each allowed probability by itself and divides the others
    by the chance of being kept; lse stays that of all allowed keys. Which pairs are dropped follows
    from `seed` (0 to 2**63 - 1, or an int64 tensor of one element on q's device) and the pair's batch
    entry, query head, row and key alone: every backend, block size and pass drops the same. Without a
    seed one is drawn from torch's generator of the device, so that torch.manual_seed repeats a run and
    torch.utils.checkpoint recomputes what it had. Zero dropout draws nothing.

    Raises StudioError, a ValueError, that names what was expected and what was got; an input that
    can't be served is never cropped, cast or handed to another backend.

    >>> import torch, pattern_studio as ps
    >>> from attention_core import block_sparse_attention, plan
    >>> layout = ps.lower(ps.parse("causal & window(63, 0)"), q_len=200, block=(64, 16))
    >>> q, k, v = torch.randn(3, 2, 8, 200, 32)
    >>> out, lse = block_sparse_attention(q, k, v, plan(layout, device=q.device), return_lse=True)
    >>> out.shape, lse.shape
    (torch.Size([2, 8, 200, 32]), torch.Size([2, 8, 200]))
    """
    if not isinstance(plan, Plan):
        raise StudioError(
            f"plan must be a Plan, got {type(plan).__name__}; "
            "make one with attention_core.plan(layout, device=q.device)"
        )
    kind = _kind(q, k, v, scale, backend, deterministic, dropout_p)
    known = None if kind is None else _known(plan).get(kind)
    if known is None:
        _check_tensors(q, k, v, plan)
        q, k, v = _one_dtype(q, k, v)
        _check_shapes(q, k, v, plan)
        scale = 1 / math.sqrt(q.shape[3]) if scale is None else _finite(scale)
        dropout = _dropout(dropout_p, seed, q)
        chosen = _automatic(q, v, plan, dropout) if backend == "auto" else backend
        _check_served(chosen, q, v, plan, deterministic)
        if kind is not None:
            if len(_known(plan)) >= KINDS:
                _known(plan).clear()
            _known(plan)[kind] = chosen, scale
    else:
        chosen, scale = known
        if (dtype := kind[0]) is not None:  # pyright: ignore[reportOptionalSubscript]  what is known has a kind
            q, k, v = _cast(q, k, v, dtype)
        dropout = None if dropout_p == 0 and seed is None else _dropout(dropout_p, seed, q)

    if chosen == "hopper":
        out, lse = _hopper(q, k, v, plan, scale, deterministic, dropout)
    elif chosen == "triton":
        out, lse = _fused(q, k, v, plan, scale, deterministic, dropout)
    elif chosen == "blocked":
        out, lse = _plain(blocked.attention, q, k, v, plan, scale, dropout)
    else:
        out, lse = _plain(_dense, q, k, v, plan, scale, dropout)
    return (out, lse) if return_lse else out


def _kind(
    q: Tensor, k: Tensor, v: Tensor, scale: object, backend: object, deterministic: bool, dropout_p: object
) -> tuple | None:
    """All that the checks and the choice of a backend follow from, autocast's dtype first; None: check every time."""
    if not nobody_looks(q, k, v) or type(backend) is not str or type(dropout_p) is not float:
        return None
    if scale is not None and type(scale) is not float:
        return None
    device = q.device
    autocast = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    return (
        autocast, device, q.shape, q.dtype, q.layout, k.device, k.shape, k.dtype, k.layout,
        v.device, v.shape, v.dtype, v.layout, scale, backend, bool(deterministic), dropout_p > 0, hopper.CHOSEN_BY_AUTO,
        hopper.DROPOUT_BY_AUTO,
    )  # fmt: skip


def _known(plan: Plan) -> dict[tuple, tuple[str, float]]:
    """Backend and scale of the kinds of calls that this plan has served."""
    return vars(plan).setdefault("_known", {})


def _automatic(q: Tensor, v: Tensor, plan: Plan, dropout: Dropout | None) -> str:
    """The fused kernels for CUDA tensors that they serve, plain torch for all others."""
    chosen = hopper.CHOSEN_BY_AUTO and (dropout is None or hopper.DROPOUT_BY_AUTO)
    if chosen and hopper.obstacle(q, v, plan.block) is None:
        return "hopper"
    return "triton" if q.is_cuda and fused.obstacle(q, v, plan.block) is None else "blocked"


def _check_served(chosen: object, q: Tensor, v: Tensor, plan: Plan, deterministic: bool) -> None:
    if chosen == "hopper":
        reason = hopper.obstacle(q, v, plan.block)
        if reason is not None:
            raise StudioError(f"backend 'hopper' can't serve this: {reason}; use backend='triton' or 'auto'")
    elif chosen == "triton":
        reason = fused.obstacle(q, v, plan.block)
        if reason is not None:
            raise StudioError(f"backend 'triton' can't serve this: {reason}; use backend='blocked' or 'auto'")
    elif chosen == "blocked":
        if deterministic and q.is_cuda:
            raise StudioError(
                "backend 'blocked' adds K and V gradients in no fixed order on CUDA, but deterministic=True was "
                "asked for; use backend='triton'"
            )
    elif chosen == "reference":
        _check_dense_fits(q, plan)
    else:
        raise StudioError(f"backend must be one of auto, {', '.join(BACKENDS)}, got {chosen!r}")


def _fused(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float, deterministic: bool, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    from .kernels.triton.op import attention

    q, scale = _positive(q, scale)
    return attention(q, k, v, plan.by_query, _transposed(plan, deterministic), scale, dropout)


def _hopper(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float, deterministic: bool, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    from .kernels.hopper.op import attention

    q, scale = _positive(q, scale)
    return attention(q, k, v, plan.by_query, _transposed(plan, deterministic), scale, bool(deterministic), dropout)


def _positive(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """The same scores by a positive scale, through which the fused kernels follow the maximum."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (q * 0, 1.0)


def _transposed(plan: Plan, deterministic: bool) -> TileLists | None:
    """The lists of dK and dV, or None where they are added to gathered keys."""
    return plan.by_key if deterministic or not fused.gathers_keys(plan.block) else None


def _plain(
    attend: Callable, q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    """Run a kernel in plain torch; where batch entries have tiles of their own, they are so many more heads."""
    if plan.batch is None:
        return attend(q, k, v, plan.runs, scale, dropout)
    batch, heads = q.shape[:2]
    runs = plan.runs if plan.problem.heads == heads else plan.runs.repeated(heads)
    dropout = dropout and replace(dropout, heads=heads)
    out, lse = attend(*(x.flatten(0, 1)[None] for x in (q, k, v)), runs, scale, dropout)
    return out.unflatten(1, (batch, heads))[0], lse.unflatten(1, (batch, heads))[0]


def _dense(
    q: Tensor, k: Tensor, v: Tensor, runs: KeyRuns, scale: float, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    return reference.attention(q, k, v, reference.dense_mask(runs), scale, dropout)


def _check_tensors(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise StudioError(f"{name} must be a torch tensor, got {type(x).__name__}")
        if x.ndim != 4:
            raise StudioError(
                f"{name} must have 4 dimensions [batch, heads, length, dim], got {x.ndim}: {list(x.shape)}; "
                "add the missing ones with unsqueeze"
            )
        if x.layout != torch.strided:
            raise StudioError(f"{name} must be a dense (strided) tensor, got {x.layout}; convert it with to_dense()")
        if x.device != plan.device:
            raise StudioError(
                f"{name} and the plan must be on one device, got {name} on {x.device} and the plan on {plan.device}; "
                f"move the plan with plan.to({str(x.device)!r}) or the inputs"
            )


def _one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast as autocast asks, then insist on one supported dtype."""
    kind = q.device.type
    if torch.is_autocast_enabled(kind):
        q, k, v = _cast(q, k, v, torch.get_autocast_dtype(kind))
    got = ", ".join(f"{name} {str(x.dtype).removeprefix('torch.')}" for name, x in (("q", q), ("k", k), ("v", v)))
    if not q.dtype == k.dtype == v.dtype:
        raise StudioError(f"q, k and v must have one dtype, got {got}; cast them or use torch.autocast")
    if q.dtype not in DTYPES:
        raise StudioError(f"q, k and v must be float16, bfloat16, float32 or float64, got {got}; cast them")
    return q, k, v


def _cast(q: Tensor, k: Tensor, v: Tensor, wanted: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(x.to(wanted) if x.is_floating_point() and x.dtype != torch.float64 else x for x in (q, k, v))


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> None:
    (batch, heads, q_len, head_dim), problem = q.shape, plan.problem
    if not batch == k.shape[0] == v.shape[0]:
        raise StudioError(f"q, k and v must have one batch size, got {batch}, {k.shape[0]} and {v.shape[0]}")
    if plan.batch not in (None, batch):
        raise StudioError(
            f"the plan is for batch size {plan.batch}, q has {batch}; make the mask for this batch, or with a batch "
            "dimension of 1 to use it for all"
        )
    if k.shape[1] != v.shape[1]:
        raise StudioError(f"k and v must have equally many heads, got {k.shape[1]} and {v.shape[1]}")
    if k.shape[1] == 0 or heads == 0 or heads % k.shape[1]:
        raise StudioError(f"q's heads must be a whole multiple of k's, got {heads} query and {k.shape[1]} key heads")
    if problem.heads not in (1, heads):
        raise StudioError(
            f"the plan is for {problem.heads} query heads, q has {heads}; "
            f"lower the pattern with heads={heads}, or with heads=1 to use one layout for all"
        )
    if k.shape[2] != v.shape[2]:
        raise StudioError(f"k and v must be equally long, got {k.shape[2]} and {v.shape[2]} keys")
    if (q_len, k.shape[2]) != (problem.q_len, problem.kv_len):
        raise StudioError(
            f"the plan is for q_len {problem.q_len} and kv_len {problem.kv_len}, "
            f"got q_len {q_len} and kv_len {k.shape[2]}; lower the pattern for these lengths"
        )
    if head_dim != k.shape[3]:
        raise StudioError(f"q and k must have one head_dim, got {head_dim} and {k.shape[3]}")
    if head_dim == 0 or v.shape[3] == 0:
        raise StudioError(f"head_dim and value_dim must be at least 1, got {head_dim} and {v.shape[3]}")


def _finite(scale: object) -> float:
    if isinstance(scale, bool) or not isinstance(scale, Real) or not math.isfinite(scale):
        raise StudioError(f"scale must be a finite number or None for 1/sqrt(head_dim), got {scale!r}")
    return float(scale)


def _dropout(p: object, seed: object, q: Tensor) -> Dropout | None:
    if isinstance(p, bool) or not isinstance(p, Real) or not 0 <= float(p) < 1:
        raise StudioError(f"dropout_p must be a number at least 0 and below 1, got {p!r}")
    if isinstance(seed, Tensor):
        if seed.dtype != torch.int64 or seed.numel() != 1 or seed.device != q.device:
            raise StudioError(
                f"a seed tensor must be int64 with one element on q's device {q.device}, got "
                f"{str(seed.dtype).removeprefix('torch.')} {list(seed.shape)} on {seed.device}"
            )
    elif seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63):
        raise StudioError(f"seed must be None, a whole number from 0 to 2**63 - 1 or an int64 tensor, got {seed!r}")
    if p == 0:
        return None
    if seed is None:  # on the device: the host waits for nothing, and a captured graph draws anew at each replay
        drawn = torch.randint(2**63 - 1, (1,), device=q.device)
    else:
        drawn = seed.reshape(1) if isinstance(seed, Tensor) else torch.full((1,), int(seed), device=q.device)
    return Dropout(float(p), drawn)


def _check_dense_fits(q: Tensor, plan: Plan) -> None:
    cells = q.shape[0] * q.shape[1] * q.shape[2] * plan.problem.kv_len
    if cells > REFERENCE_CELLS:
        raise StudioError(
            f"backend 'reference' builds all batch * heads * q_len * kv_len = {cells:,} scores and serves at most "
            f"{REFERENCE_CELLS:,}; use backend='blocked'"
        )
