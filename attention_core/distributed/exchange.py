"""exchange: keys and values on their way between ranks, and their gradients on the way back.

Collectives are torch's functional ones. In either direction one starts before work that it can hide behind, and is
waited for after that: a backward pass sends off the gradients of fetched keys before it runs on a rank's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pattern_studio.errors import StudioError

from .transfer import Passed

# The operators beneath torch.distributed._functional_collectives: plain tensors, which wait for nothing by themselves.
_exchanged = torch.ops._c10d_functional.all_to_all_single
_reduced = torch.ops._c10d_functional.all_reduce
_waited = torch.ops._c10d_functional.wait_tensor


def exchanged(rows: Tensor, received: list[int], sent: list[int], group_name: str) -> Tensor:
    """Send so many rows to each rank and get so many from each; to be waited for."""
    return _told(_exchanged, rows, received, sent, group_name)


def reduced(table: Tensor, group_name: str) -> Tensor:
    """The sum over ranks; to be waited for."""
    return _told(_reduced, table, "sum", group_name)


def waited(coming: Tensor) -> Tensor:
    """What a collective returned, once it is there."""
    return _told(_waited, coming)


def _told(collective: Callable[..., Tensor], *arguments: Any) -> Tensor:
    if torch.compiler.is_compiling():
        return collective(*arguments)
    try:
        return collective(*arguments)
    except RuntimeError as error:
        raise StudioError(
            f"keys or their gradients did not get from rank to rank: {error}; a rank died, hangs or made another call, "
            "see its log; start the process group anew"
        ) from error


class Started(torch.autograd.Function):
    """(what comes, a stand-in for the rows that were sent off): both are for `Arrived`.

    The gradient of the stand-in is what comes back to those rows. `Arrived` has sent it off; here it is waited for.
    """

    @staticmethod
    def forward(ctx, rows, received, sent, group_name):
        ctx.set_materialize_grads(False)
        return exchanged(rows, received, sent, group_name), rows.new_zeros(()).expand(rows.shape)

    @staticmethod
    def backward(ctx, _, returning):
        return waited(returning), None, None, None


class Arrived(torch.autograd.Function):
    """What `Started` sent off, once it is there."""

    @staticmethod
    def forward(ctx, coming, stand_in, received, sent, group_name):
        ctx.rest = sent, received, group_name
        return waited(coming)

    @staticmethod
    def backward(ctx, gradient):
        return None, exchanged(gradient.contiguous(), *ctx.rest), None, None, None


def start(x: Tensor, step: Passed, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Send a shard [batch, heads, keys, dim] off as it lies; `arrived` waits for the one that comes instead."""
    rows = x.contiguous().view(x.shape[1] * x.shape[2], x.shape[0] * x.shape[3])
    return Started.apply(rows, step.received, step.sent, group.group_name)


def arrived(coming: tuple[Tensor, Tensor], step: Passed, group: dist.ProcessGroup, like: Tensor) -> Tensor:
    """The shard that came, as contiguous as it was sent; batch, heads and dim are those of `like`."""
    rows = Arrived.apply(*coming, step.received, step.sent, group.group_name)
    return rows.view(*like.shape[:2], len(rows) // like.shape[1], like.shape[3])
