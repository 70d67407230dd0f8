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

from .transfer import Common, Transfer

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


def packed(k: Tensor, v: Tensor) -> Tensor:
    """k and v as rows of one table, [kv_heads * keys, batch * (head_dim + value_dim)]."""
    both = torch.cat([k, v], -1).permute(1, 2, 0, 3)  # [kv_heads, keys, batch, head_dim + value_dim]
    return both.reshape(k.shape[1] * k.shape[2], k.shape[0] * (k.shape[3] + v.shape[3]))


def unpacked(rows: Tensor, kv_heads: int, batch: int, head_dim: int, value_dim: int) -> tuple[Tensor, Tensor]:
    """The reverse of `packed`."""
    both = rows.view(kv_heads, len(rows) // kv_heads, batch, head_dim + value_dim).permute(2, 0, 1, 3)
    k, v = both.split([head_dim, value_dim], -1)  # whose gradients are joined by one copy; slices would add up zeros
    return k, v


def chosen(k: Tensor, v: Tensor, index: Tensor) -> Tensor:
    """Some rows of `packed(k, v)`, by int64 index, without packing the others."""
    return packed(*(x[:, index // k.shape[2], index % k.shape[2]][:, None] for x in (k, v)))


def add_back(
    rows: Tensor, keys: Tensor, which: Tensor | None, counts: list[int], dk: Tensor, dv: Tensor, deterministic: bool
) -> None:
    """Add rows, `which` of `keys` each belongs to (None: one to each), to those of contiguous dk and dv, in place.

    A key's gradients of all ranks that read it are summed in float32 at least and rounded once.
    """
    exact = torch.promote_types(rows.dtype, torch.float32)
    both = unpacked(rows, 1, dk.shape[0], dk.shape[3], dv.shape[3])
    # Within one rank's part no key comes twice, so adding part by part has one order.
    parts = counts if deterministic else [len(rows)]
    for x, gradient in zip((dk, dv), both, strict=True):
        flat, begin = x.view(x.shape[0], -1, x.shape[3]), 0
        total = flat.index_select(1, keys).to(exact)
        if which is None:
            total += gradient[:, 0].to(exact)
        else:
            for count in parts:
                total.index_add_(1, which[begin : begin + count], gradient[:, 0, begin : begin + count].to(exact))
                begin += count
        flat.index_copy_(1, keys, total.to(x.dtype))


class Chosen(torch.autograd.Function):
    """`chosen`, whose gradients are summed by `add_back`."""

    @staticmethod
    def forward(ctx, k, v, send, keys, which, counts, deterministic):
        ctx.save_for_backward(send if keys is None else keys, which)
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


class Summed(torch.autograd.Function):
    """A table sent off to be summed over ranks, to be waited for by `Told` or `Joined`, as in `Started`."""

    @staticmethod
    def forward(ctx, table, group_name):
        return reduced(table, group_name)

    @staticmethod
    def backward(ctx, returning):
        return waited(returning), None


class Told(torch.autograd.Function):
    """What `Summed` sent off, once it is there."""

    @staticmethod
    def forward(ctx, coming, group_name):
        ctx.group_name = group_name
        return waited(coming)

    @staticmethod
    def backward(ctx, gradient):
        return reduced(gradient.contiguous(), ctx.group_name), None


def start(rows: Tensor, transfer: Transfer, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Send rows off; `arrived` takes what is returned and waits for what comes instead."""
    return Started.apply(rows.contiguous(), transfer.received, transfer.sent, group.group_name)


def arrived(coming: tuple[Tensor, Tensor], transfer: Transfer, group: dist.ProcessGroup) -> Tensor:
    """What came, in the order of the peers."""
    return Arrived.apply(*coming, transfer.received, transfer.sent, group.group_name)


def start_table(k: Tensor, v: Tensor, common: Common, group: dist.ProcessGroup) -> Tensor:
    """Send off this rank's part of the common rows, in float32 at least, which sums gradients: `told` waits for all."""
    rows = Chosen.apply(k, v, common.give, None, None, [len(common.give)], False)
    exact = torch.promote_types(k.dtype, torch.float32)
    table = rows.new_zeros((common.rows, rows.shape[1]), dtype=exact).index_copy(0, common.slots, rows.to(exact))
    return Summed.apply(table, group.group_name)


def told(coming: Tensor, common: Common, group: dist.ProcessGroup, dtype: torch.dtype) -> Tensor:
    """The common rows that this rank reads."""
    return Told.apply(coming, group.group_name).index_select(0, common.take).to(dtype)


def placed(rows: Tensor, place: Tensor, length: int) -> Tensor:
    """Rows in their places of a buffer of so many; places that nobody reads hold 0."""
    return rows.new_zeros(length, rows.shape[1]).index_copy(0, place, rows)
