"""Dense attention under a plan's token mask: for probabilities that are asked for, and for numbers added to scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pattern_studio.errors import StudioError

from ..plan import Plan

MAX_CELLS = 2**30  # scores of one call


def token_mask(plan: Plan, batch: int, folded: bool) -> Tensor:
    """Allowed pairs, bool [batch, heads, q_len, kv_len] (a view where items are alike), on the plan's device."""
    layout = plan.layout
    firsts = [layout.head_group.tolist().index(group) for group in range(layout.groups)]
    tables = [torch.from_numpy(layout.expand(head)) for head in firsts]
    by_group = torch.stack(tables).to(plan.device)
    group = torch.from_numpy(layout.head_group).to(plan.device, torch.int64)
    heads = by_group[group]
    if folded:
        return heads.unflatten(0, (batch, -1))
    return heads[None].expand(batch, -1, -1, -1)


def check_cells(batch: int, heads: int, q_len: int, kv_len: int, why: str) -> None:
    """Raise before arrays of so many scores would be made."""
    cells = batch * heads * q_len * kv_len
    if cells > MAX_CELLS:
        raise StudioError(
            f"{why} takes all batch * heads * q_len * kv_len = {cells:,} scores, at most {MAX_CELLS:,} are built; "
            "call with need_weights=False and masks that are bool, or of 0 and -inf"
        )


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor | None, dropout_p: float, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(out, probabilities, lse) of q [batch, heads, q_len, dim], k and v [batch, heads, kv_len, dim].

    allowed bool [batch, heads, q_len, kv_len]; bias is added to the scaled scores. Probabilities, after
    dropout as nn.MultiheadAttention returns them, and lse are float64 for float64 and float32
    otherwise. A row without keys has probabilities 0, out 0 and lse -inf.
    """
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.autocast(q.device.type, enabled=False):
        scores = scale * q.to(dtype) @ k.to(dtype).mT
        if bias is not None:
            bias = bias.to(dtype)
            allowed = allowed & (bias != -torch.inf)
            scores = scores + bias.masked_fill(bias == -torch.inf, 0)
        empty = ~allowed.any(-1, keepdim=True)
        # A softmax over nothing has a gradient of NaN even where it is not used: give it something.
        scores = scores.masked_fill(~allowed, -torch.inf).masked_fill(empty, 0)
        p = scores.softmax(-1).masked_fill(empty, 0)
        lse = scores.logsumexp(-1).masked_fill(empty[..., 0], -torch.inf)
        if dropout_p:
            p = functional.dropout(p, dropout_p)
        return (p @ v.to(dtype)).to(q.dtype), p, lse
