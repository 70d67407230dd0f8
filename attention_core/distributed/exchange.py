"""exchange: keys and values on their way between ranks, and their gradients on the way back.

Collectives are torch's functional ones. In either direction one starts before work that it can hide behind, and is
waited for after that: a backward pass sends off the gradients of fetched keys before it runs on a rank's own.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from .transfer import Transfer

# The operators beneath torch.distributed._functional_collectives: plain tensors, which wait for nothing by themselves.
exchanged = torch.ops._c10d_functional.all_to_all_single
waited = torch.ops._c10d_functional.wait_tensor


def packed(k: Tensor, v: Tensor) -> Tensor:
    """k and v as rows of one table, [kv_heads * keys, batch * (head_dim + value_dim)]."""
    both = torch.cat([k, v], -1).permute(1, 2, 0, 3)  # [kv_heads, keys, batch, head_dim + value_dim]
    return both.reshape(k.shape[1] * k.shape[2], k.shape[0] * (k.shape[3] + v.shape[3]))


def unpacked(rows: Tensor, kv_heads: int, batch: int, head_dim: int, value_dim: int) -> tuple[Tensor, Tensor]:
    """The reverse of `packed`."""
    both = rows.view(kv_heads, len(rows) // kv_heads, batch, head_dim + value_dim).permute(2, 0, 1, 3)
    return both[..., :head_dim], both[..., head_dim:]


def chosen(k: Tensor, v: Tensor, index: Tensor) -> Tensor:
    """Some rows of `packed(k, v)`, by int64 index, without packing the others."""
    return packed(*(x[:, index // k.shape[2], index % k.shape[2]][:, None] for x in (k, v)))


def add_back(
    rows: Tensor, keys: Tensor, which: Tensor, counts: list[int], dk: Tensor, dv: Tensor, deterministic: bool
) -> None:
    """Add rows, `which` of `keys` each belongs to, to those rows of contiguous dk and dv, in place.

    A key's gradients of all ranks that read it are summed in float32 at least and rounded once.
    """
    exact = torch.promote_types(rows.dtype, torch.float32)
    both = unpacked(rows, 1, dk.shape[0], dk.shape[3], dv.shape[3])
    # Within one rank's part no key comes twice, so adding part by part has one order.
    parts = counts if deterministic and rows.is_cuda else [len(rows)]
    for x, gradient in zip((dk, dv), both, strict=True):
        flat, begin = x.view(x.shape[0], -1, x.shape[3]), 0
        total = flat.index_select(1, keys).to(exact)
        for count in parts:
            total.index_add_(1, which[begin : begin + count], gradient[:, 0, begin : begin + count].to(exact))
            begin += count
        flat.index_copy_(1, keys, total.to(x.dtype))


class Chosen(torch.autograd.Function):
    """`chosen`, whose gradients are summed by `add_back`."""

    @staticmethod
    def forward(ctx, k, v, send, keys, which, counts, deterministic):
        ctx.save_for_backward(keys, which)
        ctx.rest = k.shape, v.shape, counts, deterministic
        return chosen(k, v, send)

    @staticmethod
    def backward(ctx, rows):
        (keys, which), (k_shape, v_shape, counts, deterministic) = ctx.saved_tensors, ctx.rest
        dk, dv = rows.new_zeros(k_shape), rows.new_zeros(v_shape)
        add_back(rows, keys, which, counts, dk, dv, deterministic)
        return dk, dv, *[None] * 5


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


class Joined(torch.autograd.Function):
    """k and v of a buffer [batch, kv_heads, `length`, dim] of a rank's own and fetched keys, in one pass each way.

    The fetched rows travel while the own ones are copied, and so do their gradients.
    """

    @staticmethod
    def forward(ctx, k, v, send, keys, which, place, own, full, length, sent, received, group_name, deterministic):
        coming = exchanged(chosen(k, v, send), received, sent, group_name)
        made = []
        for x in (k, v):
            shape = *x.shape[:2], length, x.shape[3]
            made.append(_with_own(x, x.new_empty(shape) if full else x.new_zeros(shape), own))
        arrived = unpacked(waited(coming), 1, k.shape[0], k.shape[3], v.shape[3])
        for buffer, rows in zip(made, arrived, strict=True):
            buffer.view(buffer.shape[0], -1, buffer.shape[3]).index_copy_(1, place, rows[:, 0])
        ctx.save_for_backward(keys, which, place, own if isinstance(own, Tensor) else None)
        ctx.rest = own, k.shape[2], sent, received, group_name, deterministic
        return tuple(made)

    @staticmethod
    def backward(ctx, dk_all, dv_all):
        keys, which, place, index = ctx.saved_tensors
        own, length, sent, received, group_name, deterministic = ctx.rest
        coming = exchanged(chosen(dk_all, dv_all, place), sent, received, group_name)
        dk, dv = (_own_of(x, index if index is not None else own, length) for x in (dk_all, dv_all))
        add_back(waited(coming), keys, which, sent, dk, dv, deterministic)
        return dk, dv, *[None] * 11


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


def start(rows: Tensor, transfer: Transfer, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Send rows off; `arrived` takes what is returned and waits for what comes instead."""
    return Started.apply(rows.contiguous(), transfer.received, transfer.sent, group.group_name)


def arrived(coming: tuple[Tensor, Tensor], transfer: Transfer, rows: int, group: dist.ProcessGroup) -> Tensor:
    """What came, each row in its place of a buffer of so many rows; places that nobody reads hold 0."""
    there = Arrived.apply(*coming, transfer.received, transfer.sent, group.group_name)
    if transfer.place is None:
        return there
    return there.new_zeros(rows, there.shape[1]).index_copy(0, transfer.place, there)
