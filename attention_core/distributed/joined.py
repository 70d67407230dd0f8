"""joined: own and fetched keys in one buffer, for one pass over both."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from .exchange import add_back, chosen, exchanged, reduced, start_table, unpacked, waited
from .transfer import Transfer


def joined(
    k: Tensor, v: Tensor, transfer: Transfer, length: int, group: dist.ProcessGroup, deterministic: bool
) -> tuple[Tensor, Tensor]:
    """k and v of `length` keys: the rank's own and those that it fetches."""
    common = transfer.common
    table = None if common is None else start_table(k, v, common, group)
    taken = (None, None) if common is None else (common.take, common.place)
    tensors = transfer.send, transfer.keys, transfer.which, transfer.place, *taken
    return Joined.apply(
        k, v, table, tensors, transfer.own, transfer.full, length,
        transfer.sent, transfer.received, group.group_name, deterministic,
    )  # fmt: skip


class Joined(torch.autograd.Function):
    """k and v of a buffer [batch, kv_heads, `length`, dim] of a rank's own and fetched keys, in one pass each way.

    The fetched rows travel while the own ones are copied, and so do their gradients.
    """

    @staticmethod
    def forward(ctx, k, v, table, transfer_tensors, own, full, length, sent, received, group_name, deterministic):
        send, keys, which, place, take, take_place = transfer_tensors
        coming = exchanged(chosen(k, v, send), received, sent, group_name)
        made = []
        for x in (k, v):
            shape = *x.shape[:2], length, x.shape[3]
            made.append(_with_own(x, x.new_empty(shape) if full else x.new_zeros(shape), own))
        _put(waited(coming), place, made)
        if table is not None:
            _put(waited(table)[take].to(k.dtype), take_place, made)
        ctx.save_for_backward(keys, which, place, take, take_place, own if isinstance(own, Tensor) else None)
        ctx.table = None if table is None else (table.shape, table.dtype)
        ctx.rest = own, k.shape[2], sent, received, group_name, deterministic
        return tuple(made)

    @staticmethod
    def backward(ctx, dk_all, dv_all):
        keys, which, place, take, take_place, index = ctx.saved_tensors
        own, length, sent, received, group_name, deterministic = ctx.rest
        coming = exchanged(chosen(dk_all, dv_all, place), sent, received, group_name)
        d_table = None
        if ctx.table is not None:
            shape, dtype = ctx.table
            d_table = dk_all.new_zeros(shape, dtype=dtype)
            d_table = d_table.index_copy(0, take, chosen(dk_all, dv_all, take_place).to(dtype))
            d_table = reduced(d_table, group_name)
        dk, dv = (_own_of(x, index if index is not None else own, length) for x in (dk_all, dv_all))
        add_back(waited(coming), keys, which, sent, dk, dv, deterministic)
        return dk, dv, d_table, *[None] * 8


def _put(rows: Tensor, place: Tensor, buffers: list[Tensor]) -> None:
    """Put packed rows into their places of k's and v's buffer."""
    k, v = buffers
    for buffer, part in zip(buffers, unpacked(rows, 1, k.shape[0], k.shape[3], v.shape[3]), strict=True):
        buffer.view(buffer.shape[0], -1, buffer.shape[3]).index_copy_(1, place, part[:, 0])


def _with_own(x: Tensor, buffer: Tensor, own: Tensor | int) -> Tensor:
    if isinstance(own, int):
        buffer[:, :, own : own + x.shape[2]] = x
    else:
        buffer.view(x.shape[0], -1, x.shape[3]).index_copy_(1, own, x.flatten(1, 2))
    return buffer


def _own_of(gradient: Tensor, own: Tensor | int, length: int) -> Tensor:
    """A copy of the rank's own rows, contiguous: others' gradients are added to it."""
    if isinstance(own, int):
        return gradient[:, :, own : own + length].clone(memory_format=torch.contiguous_format)
    return gradient.flatten(1, 2).index_select(1, own).unflatten(1, (gradient.shape[1], length))
