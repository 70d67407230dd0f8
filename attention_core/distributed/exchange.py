"""exchange: keys and values on their way between ranks, and their gradients on the way back."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd

from .plan import Transfer


def packed(k: Tensor, v: Tensor) -> Tensor:
    """k and v as rows of one table, [kv_heads * keys, batch * (head_dim + value_dim)]."""
    both = torch.cat([k, v], -1).permute(1, 2, 0, 3)  # [kv_heads, keys, batch, head_dim + value_dim]
    return both.reshape(k.shape[1] * k.shape[2], k.shape[0] * (k.shape[3] + v.shape[3]))


def unpacked(rows: Tensor, kv_heads: int, batch: int, head_dim: int, value_dim: int) -> tuple[Tensor, Tensor]:
    """The reverse of `packed`."""
    both = rows.view(kv_heads, len(rows) // kv_heads, batch, head_dim + value_dim).permute(2, 0, 1, 3)
    return both[..., :head_dim], both[..., head_dim:]


def start(rows: Tensor, transfer: Transfer, group: dist.ProcessGroup) -> Tensor:
    """Send rows off; the result waits for what arrives when it is first used, so work in between overlaps.

    Its gradient goes back to the rows that were sent.
    """
    outgoing = rows if transfer.send is None else rows.index_select(0, transfer.send)
    return all_to_all_single_autograd(outgoing.contiguous(), transfer.received, transfer.sent, group)


def placed(arrived: Tensor, transfer: Transfer, rows: int) -> Tensor:
    """What arrived, each row in its place of a buffer of so many rows; places that nobody reads hold 0."""
    if transfer.place is None:
        return arrived
    return arrived.new_zeros(rows, arrived.shape[1]).index_copy(0, transfer.place, arrived)
