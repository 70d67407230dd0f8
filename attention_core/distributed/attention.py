"""distributed_block_sparse_attention(): one pattern over a sequence that is sharded over ranks."""

from __future__ import annotations

from typing import Literal, overload

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from pattern_studio.errors import StudioError

from ..ops import block_sparse_attention
from .agreement import agree
from .exchange import Chosen, arrived, packed, placed, start, start_table, told, unpacked
from .joined import joined
from .merge import merge
from .plan import DistributedPlan

Group = DeviceMesh | dist.ProcessGroup | None


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
    if transfer is not None:
        k, v = joined(k, v, transfer, first.problem.kv_len, group, deterministic)
        out, lse = _run(q, k, v, first, scale, backend, deterministic)
    else:
        out, lse = merge(_parts(q, k, v, plan, group, scale, backend, deterministic))
    return (out, lse) if return_lse else out


def _parts(q, k, v, plan, group, scale, backend, deterministic) -> list[tuple[Tensor, Tensor]]:
    """Attention over the rank's own keys, then over those that came meanwhile, step by step."""
    steps, coming, table = plan.steps, None, None
    if len(steps) > 1:
        transfer = steps[1][1]
        if transfer.send is None:
            rows = packed(k, v)
        else:
            rows = Chosen.apply(k, v, transfer.send, transfer.keys, transfer.which, transfer.sent, deterministic)
        coming = start(rows, transfer, group)
        table = None if transfer.common is None else start_table(k, v, transfer.common, group)
    parts = [_run(q, k, v, steps[0][0], scale, backend, deterministic)]
    for number, (part, transfer) in enumerate(steps[1:], 1):
        assert coming is not None
        assert transfer is not None
        there = arrived(coming, transfer, group)
        if number + 1 < len(steps):  # a ring passes on what has just arrived, while the rank runs on it
            coming = start(there, steps[number + 1][1], group)
        place = transfer.place
        if table is not None:
            there = torch.cat([there, told(table, transfer.common, group, there.dtype)])
            place = torch.cat([place, transfer.common.place])
        if place is not None:
            there = placed(there, place, part.problem.kv_len * plan.kv_heads)
        keys = unpacked(there, plan.kv_heads, q.shape[0], k.shape[3], v.shape[3])
        parts.append(_run(q, *keys, part, scale, backend, deterministic))
    return parts


def _run(q, k, v, part, scale, backend, deterministic) -> tuple[Tensor, Tensor]:
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
