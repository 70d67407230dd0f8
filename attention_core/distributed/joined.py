"""joined: own and fetched keys in one buffer, for one pass over both."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from .exchange import exchanged, reduced, waited
from .rows import add_back, buffers, chosen, move, put, spread
from .transfer import Transfer


def joined(k: Tensor, v: Tensor, transfer: Transfer, length: int, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """k and v of `length` keys: the rank's own and those that it fetches."""
    return Joined.apply(k, v, transfer, length, group.group_name)


class Joined(torch.autograd.Function):
    """k and v of a buffer [batch, kv_heads, `length`, dim] of a rank's own and fetched keys, in one pass each way.

    The fetched rows travel while the own ones are copied, and so do their gradients.
    """

    @staticmethod
    def forward(ctx, k, v, transfer, length, group_name):
        ctx.transfer, ctx.length, ctx.group_name = transfer, k.shape[2], group_name
        common, table = transfer.common, None
        coming = exchanged(chosen(k, v, transfer.send), transfer.received, transfer.sent, group_name)
        if common is not None:
            table = reduced(spread(k, v, common.give, common.slots, common.rows), group_name)
        made = buffers(k, v, transfer, length)
        _put_own(k, v, transfer.own, *made)
        put(waited(coming), None, transfer.place, *made)
        if common is not None and table is not None:
            put(waited(table), common.take, common.place, *made)
        return made

    @staticmethod
    def backward(ctx, dk_all, dv_all):
        transfer, common, table = ctx.transfer, ctx.transfer.common, None
        coming = exchanged(chosen(dk_all, dv_all, transfer.place), transfer.sent, transfer.received, ctx.group_name)
        if common is not None:
            table = reduced(spread(dk_all, dv_all, common.place, common.take, common.rows), ctx.group_name)
        dk, dv = _own_of(dk_all, dv_all, transfer.own, ctx.length)
        add_back(waited(coming), transfer.back, dk, dv)
        if common is not None and table is not None:
            add_back(waited(table), common.back, dk, dv)
        return dk, dv, None, None, None


def _put_own(k: Tensor, v: Tensor, own: Tensor | int, k_all: Tensor, v_all: Tensor) -> None:
    if isinstance(own, int):
        for x, buffer in ((k, k_all), (v, v_all)):
            buffer[:, :, own : own + x.shape[2]] = x
    else:
        move(k, v, own, k_all, v_all)


def _own_of(dk_all: Tensor, dv_all: Tensor, own: Tensor | int, length: int) -> tuple[Tensor, Tensor]:
    """Copies of the rank's own rows, contiguous: others' gradients are added to them."""
    if isinstance(own, int):
        mine = [x[:, :, own : own + length] for x in (dk_all, dv_all)]
        dk, dv = (x.clone(memory_format=torch.contiguous_format) for x in mine)
        return dk, dv
    dk, dv = (x.new_empty((*x.shape[:2], length, x.shape[3])) for x in (dk_all, dv_all))
    move(dk_all, dv_all, own, dk, dv, take=True)
    return dk, dv
