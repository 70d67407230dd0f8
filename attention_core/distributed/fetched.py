"""fetched: keys of other ranks in a buffer of their own, for a second pass, that travel during the first one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from .exchange import exchanged, reduced, waited
from .rows import add_back, buffers, chosen, put, spread
from .transfer import Transfer

Coming = tuple[Tensor, Tensor, Tensor | None]


def start_fetch(k: Tensor, v: Tensor, transfer: Transfer, group: dist.ProcessGroup) -> tuple[Tensor, Tensor, Coming]:
    """Send off the rows that other ranks read: (k, v, what `fetched` takes). The own keys are to be read from these."""
    k, v, *coming = Sent.apply(k, v, transfer, group.group_name)
    return k, v, tuple(coming)


def fetched(
    coming: Coming, k: Tensor, v: Tensor, transfer: Transfer, length: int, group: dist.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """k and v of the `length` keys of the buffer, contiguous; batch, heads and channels are those of k and v."""
    return Fetched.apply(*coming, k.detach(), v.detach(), transfer, length, group.group_name)


class Sent(torch.autograd.Function):
    """(k, v, what comes, a stand-in for the rows that were sent off, the table of common keys or None).

    The gradient of the stand-in is what comes back to those rows, and that of the table the sum over ranks. `Fetched`
    has sent both off; here they are waited for. k and v are the inputs: what they get from the rank's own pass is in
    our hands alone, so that the gradients of the rows that were sent are added to it in place.
    """

    @staticmethod
    def forward(ctx, k, v, transfer, group_name):
        ctx.set_materialize_grads(False)
        ctx.transfer = transfer
        ctx.like = k.detach(), v.detach()
        rows = chosen(k, v, transfer.send)
        coming, table = exchanged(rows, transfer.received, transfer.sent, group_name), None
        if (common := transfer.common) is not None:
            table = reduced(spread(k, v, common.give, common.slots, common.rows), group_name)
        return k, v, coming, rows.new_zeros(()).expand(rows.shape), table

    @staticmethod
    def backward(ctx, dk, dv, _, returning, d_table):
        transfer = ctx.transfer
        dk, dv = (_unshared(gradient, x) for gradient, x in zip((dk, dv), ctx.like, strict=True))
        add_back(waited(returning), transfer.back, dk, dv)
        if d_table is not None:
            add_back(waited(d_table), transfer.common.back, dk, dv)
        return dk, dv, None, None


class Fetched(torch.autograd.Function):
    """What `Sent` sent off, in its places, once it is there."""

    @staticmethod
    def forward(ctx, coming, stand_in, table, k, v, transfer, length, group_name):
        ctx.transfer, ctx.group_name = transfer, group_name
        made = buffers(k, v, transfer, length)
        put(waited(coming), None, transfer.place, *made)
        if table is not None:
            put(waited(table), transfer.common.take, transfer.common.place, *made)
        return made

    @staticmethod
    def backward(ctx, dk, dv):
        transfer, d_table = ctx.transfer, None
        coming = exchanged(chosen(dk, dv, transfer.place), transfer.sent, transfer.received, ctx.group_name)
        if (common := transfer.common) is not None:
            d_table = reduced(spread(dk, dv, common.place, common.take, common.rows), ctx.group_name)
        return None, coming, d_table, *[None] * 5


def _unshared(gradient: Tensor | None, x: Tensor) -> Tensor:
    """A contiguous gradient of x that may be written to."""
    if gradient is None:
        return x.new_zeros(x.shape)
    if torch.is_grad_enabled():  # a graph of the gradients is wanted, which holds this one
        return gradient.clone(memory_format=torch.contiguous_format)
    return gradient.contiguous()
