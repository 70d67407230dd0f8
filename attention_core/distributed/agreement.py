"""agreement: all ranks make the same call, or every one of them says what differs."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from pattern_studio.errors import StudioError

from .plan import DistributedPlan


def agree(q: Tensor, k: Tensor, v: Tensor, plan: DistributedPlan, settings: str, group: dist.ProcessGroup) -> None:
    """Compare the call with those of all ranks, the first time that this plan is called so.

    Ranks that pass different shapes later on are found by the collective itself, at the group's
    timeout. Raises StudioError on every rank where they differ, and where a rank does not answer.
    """
    learned = "".join(name for name, x in zip("qkv", (q, k, v), strict=True) if x.requires_grad)
    call = (
        f"plan {plan.fingerprint[:12]}, batch {q.shape[0]}, heads {q.shape[1]}, KV heads {k.shape[1]}, "
        f"head_dim {q.shape[3]}, value_dim {v.shape[3]}, {str(q.dtype).removeprefix('torch.')}, "
        f"gradients of {learned if learned and torch.is_grad_enabled() else 'none'}, {settings}"
    )
    if call not in plan.agreed:
        _compare(call, plan, group)


@torch.compiler.disable(reason="ranks compare their calls as Python objects; once they agree, nothing is exchanged")
def _compare(call: str, plan: DistributedPlan, group: dist.ProcessGroup) -> None:
    calls: list[str | None] = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(calls, call, group)
    except RuntimeError as error:
        raise StudioError(
            f"rank {plan.rank} could not compare its call with the other ranks: {error}; "
            "a rank died, hangs or never called; see its log"
        ) from error
    other = [f"rank {rank}: {text}" for rank, text in enumerate(calls) if text != call]
    if other:
        raise StudioError(
            f"the ranks must make one call, but rank {plan.rank} has {call}, and {other[0]}; "
            "lower one pattern for the whole sequence on every rank and shard the same tensors"
        )
    plan.agreed.add(call)
