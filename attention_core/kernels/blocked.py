"""Block-sparse attention in plain torch: any device, forward and backward, work that follows the active tiles.

Lines (query blocks of one head layout) with nearly the same number of keys are taken together: their
keys are gathered, whatever runs they come from, and one online softmax goes over all of them. Half
precision is computed and summed in float32, float64 in float64. Runs repeat bit for bit on a CPU;
on a GPU dk and dv do so under torch.use_deterministic_algorithms(True).

What NaN and infinity in the inputs may reach: a key row that no query of a block is allowed never
reaches that block, nor does a block that is not allowed a key reach the key's gradient. A key that
some rows of a block are allowed is ordinary data for that block: a NaN there may reach its other
rows too, as in any kernel that multiplies whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .dropout import Dropout
from .gather import Slots, rows_of, slots_of
from .runs import KeyRuns
from .schedule import Chunk, chunks

INF = float("inf")


def attention(
    q: Tensor, k: Tensor, v: Tensor, runs: KeyRuns, scale: float, dropout: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """Attention over the pairs that `runs` allows: (out, lse), once differentiable in q, k and v.

    q [batch, heads, q_len, head_dim]; k [batch, kv_heads, kv_len, head_dim]; v [batch, kv_heads,
    kv_len, value_dim], any strides, one dtype and device. Query head h reads key head
    h // (heads // kv_heads). out has q's dtype; lse [batch, heads, q_len] is the natural logarithm,
    float64 for float64 and float32 otherwise. A row without keys gives out 0, lse -inf and zero gradients.
    `dropout` acts on the probabilities that weight the values; lse is that of all allowed keys.
    """
    out, lse = _Blocked.apply(q, k, v, runs, scale, dropout)  # type: ignore[misc]  # apply is untyped
    return out, lse


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, runs: KeyRuns, scale: float, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(q.device.type, enabled=False):
            exact, lse = _forward(q, k, v, runs, scale, dropout)
        # The backward subtracts d_out . out, where a rounding of out would cost more than all else does.
        ctx.save_for_backward(q, k, v, exact, lse)
        ctx.runs, ctx.scale, ctx.dropout = runs, scale, dropout
        ctx.set_materialize_grads(False)
        return exact.to(q.dtype), lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        d_out = torch.zeros_like(out) if d_out is None else d_out
        with torch.autocast(q.device.type, enabled=False):
            grads = _backward(q, k, v, out, lse, d_out, d_lse, ctx.runs, ctx.scale, ctx.dropout)
        return *grads, None, None, None


def _forward(
    q: Tensor, k: Tensor, v: Tensor, runs: KeyRuns, scale: float, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    """(out, lse), both in the dtype of the sums."""
    dtype = _sum_dtype(q)
    q_rows, k_rows, v_rows = q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2)
    # One row more than needed: rows beyond q_len of a ragged block are written there.
    out = q.new_zeros(len(q_rows) + 1, v.shape[3], dtype=dtype)
    lse = q.new_full((len(q_rows) + 1,), -INF, dtype=dtype)
    for chunk in chunks(runs, q.shape[0], q.shape[1], k.shape[1], q.shape[3] + v.shape[3]):
        index, exists = _query_index(chunk, runs, q.shape[1])  # [batch, packs, lines, heads * rows]
        queries = _rows(q_rows, index).to(dtype) * scale  # [batch, packs, lines, heads * rows, head_dim]
        top = queries.new_full((*index.shape, 1), -INF)  # largest score so far
        total = torch.zeros_like(top)  # sum of exp(score - top) so far
        acc = queries.new_zeros(*index.shape, v.shape[3])  # the same sum, weighted with the values
        for slots, where in _key_slices(chunk, runs, k.shape[1], q.shape[1]):
            keys, values = _gather(k_rows, where, slots, dtype), _gather(v_rows, where, slots, dtype)
            scores = _masked(queries @ keys.mT, slots, -INF)  # [batch, packs, lines, heads * rows, slots]
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            finite = new_top.masked_fill(new_top == -INF, 0)  # no key yet: keep -inf - -inf from arising
            p = scores.sub_(finite).exp_()
            fade = (top - finite).exp_()
            total = total * fade + p.sum(-1, keepdim=True)
            if dropout is not None:
                p *= _weights(dropout, chunk, runs, slots, dtype)
            acc = acc.mul_(fade).add_(p @ values)
            top = new_top
        index = torch.where(exists, index, len(q_rows))
        out[index] = acc.div_(total).masked_fill_(total == 0, 0)
        lse[index] = (top + total.log()).squeeze(-1)
    return out[:-1].view(*q.shape[:3], v.shape[3]), lse[:-1].view(q.shape[:3])


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    d_out: Tensor,
    d_lse: Tensor | None,
    runs: KeyRuns,
    scale: float,
    dropout: Dropout | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by p = exp(score - lse); d_score = p * (w * d_out . v - d_out . out + d_lse).

    w is 1 without dropout, otherwise the pair's weight.
    """
    dtype = _sum_dtype(q)
    q_rows, k_rows, v_rows = q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2)
    out, lse, d_out = out.flatten(0, 2), lse.flatten(), d_out.flatten(0, 2)
    d_lse = None if d_lse is None else d_lse.flatten()
    dq = q.new_zeros(len(q_rows) + 1, q.shape[3])
    # The last row takes what slots that are not live would add.
    dk = k.new_zeros(len(k_rows) + 1, k.shape[3], dtype=dtype)
    dv = v.new_zeros(len(v_rows) + 1, v.shape[3], dtype=dtype)
    for chunk in chunks(runs, q.shape[0], q.shape[1], k.shape[1], q.shape[3] + v.shape[3]):
        index, exists = _query_index(chunk, runs, q.shape[1])  # [batch, packs, lines, heads * rows]
        queries = _rows(q_rows, index).to(dtype) * scale  # [batch, packs, lines, heads * rows, head_dim]
        row_lse = lse[index]
        # Rows beyond q_len and rows without keys take no part, whatever gradient reached them.
        idle = ((row_lse == -INF) | ~exists)[..., None]
        row_lse = row_lse[..., None].masked_fill(idle, INF)  # exp(score - inf) = 0
        d_rows = _rows(d_out, index).to(dtype).masked_fill(idle, 0)  # [batch, packs, lines, heads * rows, value_dim]
        delta = (d_rows * _rows(out, index)).sum(-1, keepdim=True)
        if d_lse is not None:
            delta -= d_lse[index][..., None].masked_fill(idle, 0)
        d_queries = torch.zeros_like(queries)
        for slots, where in _key_slices(chunk, runs, k.shape[1], q.shape[1]):
            keys, values = _gather(k_rows, where, slots, dtype), _gather(v_rows, where, slots, dtype)
            target = where if slots.live is None else torch.where(slots.live, where, len(k_rows))
            p = _masked((queries @ keys.mT).sub_(row_lse).exp_(), slots, 0)  # [..., heads * rows, slots]
            d_p, weighted = d_rows @ values.mT, p
            if dropout is not None:
                weights = _weights(dropout, chunk, runs, slots, dtype)
                d_p, weighted = d_p.mul_(weights), p * weights
            dv.index_add_(0, target.flatten(), (weighted.mT @ d_rows).flatten(0, 3))
            d_scores = d_p.sub_(delta).mul_(p)
            dk.index_add_(0, target.flatten(), (d_scores.mT @ queries).flatten(0, 3))
            d_queries += d_scores @ keys
        dq[torch.where(exists, index, len(q_rows))] = d_queries.mul_(scale).masked_fill_(idle, 0).to(dq.dtype)
    return dq[:-1].view(q.shape), dk[:-1].view(k.shape).to(k.dtype), dv[:-1].view(v.shape).to(v.dtype)


def _sum_dtype(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _query_index(chunk: Chunk, runs: KeyRuns, heads: int) -> tuple[Tensor, Tensor]:
    """Flat rows of q in a chunk, safe to read, int64 [batch, packs, lines, heads * rows], and which exist."""
    row = rows_of(runs, chunk.lines)  # [lines, rows]
    batch = torch.arange(chunk.first_batch, chunk.last_batch, device=row.device)
    head = chunk.packs[..., None] * chunk.heads_per_pack + torch.arange(chunk.heads_per_pack, device=row.device)
    line = batch[:, None, None, None] * heads + head  # [batch, packs, lines, heads]
    index = line[..., None] * runs.q_len + row.clamp(max=runs.q_len - 1)[:, None, :]
    return index.flatten(3), (row < runs.q_len)[:, None, :].expand(index.shape).flatten(3)


def _key_slices(chunk: Chunk, runs: KeyRuns, kv_heads: int, heads: int) -> Iterator[tuple[Slots, Tensor]]:
    """Yield each part of a chunk's slots with its flat rows of k and v, int64 [batch, packs, lines, slots]."""
    batch = torch.arange(chunk.first_batch, chunk.last_batch, device=chunk.lines.device)
    head = chunk.packs * chunk.heads_per_pack // (heads // kv_heads)  # [packs, lines]
    line = (batch[:, None, None] * kv_heads + head)[..., None] * runs.kv_len
    for first, stop in chunk.slices:
        slots = slots_of(runs, chunk.lines, first, stop, masked=first >= chunk.full)
        yield slots, line + slots.key


def _weights(dropout: Dropout, chunk: Chunk, runs: KeyRuns, slots: Slots, dtype: torch.dtype) -> Tensor:
    """What dropout multiplies probabilities by, [batch, packs, lines, heads * rows, slots]."""
    device = chunk.lines.device
    batch = torch.arange(chunk.first_batch, chunk.last_batch, device=device).view(-1, 1, 1, 1, 1, 1)
    head = chunk.packs[..., None] * chunk.heads_per_pack + torch.arange(chunk.heads_per_pack, device=device)
    row, key = rows_of(runs, chunk.lines)[:, None, :, None], slots.key[:, None, None, :]
    return dropout.weights(batch, head[..., None, None], row, key, dtype).flatten(3, 4)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index], for x [rows, dim]: [*index.shape, dim]."""
    return x.index_select(0, index.flatten()).unflatten(0, index.shape)


def _gather(x: Tensor, where: Tensor, slots: Slots, dtype: torch.dtype) -> Tensor:
    """Rows of k or v, [batch, packs, lines, slots, dim], zero where no row of the line may look."""
    got = _rows(x, where).to(dtype)
    # A masked score or probability is 0, and 0 * NaN is NaN.
    return got if slots.live is None else got.masked_fill_(~slots.live[..., None], 0)


def _masked(scores: Tensor, slots: Slots, fill: float) -> Tensor:
    """`scores` [batch, packs, lines, heads * rows, slots], overwritten with `fill` where a pair is not allowed."""
    if slots.allowed is not None:
        rows = slots.allowed.shape[1]
        scores.unflatten(3, (-1, rows)).masked_fill_(~slots.allowed[:, None], fill)
    return scores
