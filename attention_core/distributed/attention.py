"""distributed_block_sparse_attention(): one pattern over a sequence that is sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, overload

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from pattern_studio.errors import StudioError

from ..ops import block_sparse_attention
from ..plan import Plan
from .agreement import agree
from .exchange import arrived, start
from .fetched import fetched, start_fetch
from .joined import joined
from .merge import merge
from .plan import DistributedPlan
from .transfer import Passed, Transfer

Group = DeviceMesh | dist.ProcessGroup | None
Part = tuple[Tensor, Tensor]  # out and lse over some of the keys
Run = Callable[[Tensor, Tensor, Plan], Part]


@overload
def distributed_block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: DistributedPlan,
    mesh: Group = None,
    *,
    scale: float | None = None,
    return_lse: Literal[False] = False,
    backend: str = "auto",
    deterministic: bool = False,
) -> Tensor: ...


@overload
def distributed_block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: DistributedPlan,
    mesh: Group = None,
    *,
    scale: float | None = None,
    return_lse: Literal[True],
    backend: str = "auto",
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]: ...


def distributed_block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: DistributedPlan,
    mesh: Group = None,
    *,
    scale: float | None = None,
    return_lse: bool = False,
    backend: str = "auto",
    deterministic: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`block_sparse_attention` over a sequence whose tokens are sharded over the ranks of a group.

    Shapes, on each rank: q [batch, heads, local q_len, head_dim]; k [batch, kv_heads, local kv_len,
    head_dim]; v [batch, kv_heads, local kv_len, value_dim]: the rows of the whole tensors at
    `plan.query_positions` and `plan.key_positions`. Returns this rank's rows of what one device
    would return, forward and backward. All ranks must call it, with one plan's parts, in one order.

    `mesh` is a one-dimensional DeviceMesh or a process group (the default group if None). In a plan
    that overlaps, keys of other ranks travel while the rank runs on its own; the parts are joined by
    their LSE, in LSE's dtype, and a half-precision output is rounded once more than on one device.

    Raises StudioError where this rank's input does not fit its plan, and on every rank where their
    calls differ.
    """
    if not isinstance(plan, DistributedPlan):
        raise StudioError(
            f"plan must be a DistributedPlan, got {type(plan).__name__}; "
            "make one with attention_core.distributed.distributed_plan(layout, ranks, rank)"
        )
    group = _group(mesh, plan)
    _check(q, k, v, plan)
    agree(q, k, v, plan, f"scale {scale}, backend {backend}, deterministic {deterministic}", group)

    first, transfer = plan.steps[0]
    run = partial(_run, q, scale=scale, backend=backend, deterministic=deterministic)
    if isinstance(transfer, Transfer):
        out, lse = run(*joined(k, v, transfer, first.problem.kv_len, group), first)
    else:
        out, lse = merge((_ring if plan.mode == "ring" else _parts)(k, v, plan, group, run))
    return (out, lse) if return_lse else out


def _parts(k: Tensor, v: Tensor, plan: DistributedPlan, group: dist.ProcessGroup, run: Run) -> list[Part]:
    """Attention over the rank's own keys, then over those that it fetched meanwhile."""
    own = plan.steps[0][0]
    if len(plan.steps) == 1:
        return [run(k, v, own)]
    there, transfer = plan.steps[1]
    assert isinstance(transfer, Transfer)
    k, v, coming = start_fetch(k, v, transfer, group)
    first = run(k, v, own)
    return [first, run(*fetched(coming, k, v, transfer, there.problem.kv_len, group), there)]


def _ring(k: Tensor, v: Tensor, plan: DistributedPlan, group: dist.ProcessGroup, run: Run) -> list[Part]:
    """Attention over the rank's own keys, then shard by shard: each is passed on while the rank runs on it."""
    parts: list[Part] = []
    for number, (part, _) in enumerate(plan.steps):
        following = plan.steps[number + 1][1] if number + 1 < len(plan.steps) else None
        # k and v travel by themselves, so that neither is copied on its way, nor are their gradients.
        coming = [start(x, following, group) for x in (k, v)] if isinstance(following, Passed) else []
        parts.append(run(k, v, part))
        if isinstance(following, Passed):
            k, v = (arrived(each, following, group, like=x) for each, x in zip(coming, (k, v), strict=True))
    return parts


def _run(q: Tensor, k: Tensor, v: Tensor, part: Plan, *, scale, backend, deterministic) -> Part:
    return block_sparse_attention(
        q, k, v, part, scale=scale, return_lse=True, backend=backend, deterministic=deterministic
    )


def _group(mesh: Group, plan: DistributedPlan) -> dist.ProcessGroup:
    if mesh is None:
        group = dist.group.WORLD
    elif isinstance(mesh, dist.ProcessGroup):
        group = mesh
    else:
        if mesh.ndim != 1:
            raise StudioError(f"expected a mesh of one dimension, got {mesh.ndim}; take one with mesh['name']")
        group = mesh.get_group()
    if group is None:
        raise StudioError("there is no process group; call torch.distributed.init_process_group() first")
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if (size, rank) != (plan.needs.ranks, plan.rank):
        raise StudioError(
            f"the plan is for rank {plan.rank} of {plan.needs.ranks}, this is rank {rank} of {size}; "
            "make it with distributed_plan(layout, dist.get_world_size(group), dist.get_rank(group))"
        )
    return group


def _check(q: Tensor, k: Tensor, v: Tensor, plan: DistributedPlan) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.ndim != 4:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise StudioError(f"{name} must be a tensor [batch, heads, local length, dim], got {got}")
    if (q.shape[2], k.shape[2]) != plan.lengths or v.shape[2] != k.shape[2]:
        raise StudioError(
            f"rank {plan.rank} holds {plan.lengths[0]} query rows and {plan.lengths[1]} keys, got {q.shape[2]} rows, "
            f"{k.shape[2]} keys and {v.shape[2]} values; shard with plan.query_positions and plan.key_positions"
        )
    if k.shape[1] != plan.kv_heads or v.shape[1] != plan.kv_heads:
        raise StudioError(
            f"the plan is for {plan.kv_heads} KV heads, got {k.shape[1]} of k and {v.shape[1]} of v; "
            "make it with kv_heads=..."
        )
