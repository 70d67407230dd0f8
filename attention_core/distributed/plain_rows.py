"""Rows of k and v packed, put, moved and added up in plain torch: the definition of kernels/triton/key_rows.py.

Rows of a tensor [batch, heads, keys, dim] are numbered head by head. A table has a row for each chosen one, [batch,
head_dim + value_dim] in one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pack_rows(k: Tensor, v: Tensor, index: Tensor, slots: Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
    """A table of `count` rows: rows `index` of k and v at `slots`, zeros elsewhere (no slots: in order)."""
    chosen = [x[:, index // x.shape[2], index % x.shape[2]] for x in (k, v)]  # [batch, rows, dim] each
    rows = torch.cat([x.to(dtype) for x in chosen], -1).transpose(0, 1).flatten(1)
    return rows if slots is None else rows.new_zeros((count, rows.shape[1])).index_copy(0, slots, rows)


def put_rows(table: Tensor, take: Tensor | None, place: Tensor, k: Tensor, v: Tensor) -> None:
    """Rows `take` of a table (None: all) into rows `place` of contiguous k and v."""
    rows = table if take is None else table.index_select(0, take)
    for x, part in zip((k, v), _unpacked(rows, k, v), strict=True):
        _flat(x).index_copy_(1, place, part.to(x.dtype))


def move_rows(k: Tensor, v: Tensor, index: Tensor, take: bool, k_to: Tensor, v_to: Tensor) -> None:
    """All rows of k and v into rows `index` of contiguous k_to and v_to, or the reverse: rows `index` into all."""
    for x, to in ((k, k_to), (v, v_to)):
        if take:
            _flat(to).copy_(x.flatten(1, 2).index_select(1, index))
        else:
            _flat(to).index_copy_(1, index, x.flatten(1, 2).to(to.dtype))


def add_rows(table: Tensor, keys: Tensor, rows: Tensor, turns: Sequence[int], dk: Tensor, dv: Tensor) -> None:
    """Rows of a table added to rows `keys` of contiguous dk and dv, in turns, to so many first keys each.

    `rows` holds what is added in the first turn, then in the second, and so on. Sums are float32 at least and rounded
    once.
    """
    exact = torch.promote_types(table.dtype, torch.float32)
    for x, part in zip((dk, dv), _unpacked(table, dk, dv), strict=True):
        flat, begin = _flat(x), 0
        total = flat.index_select(1, keys).to(exact)
        for count in turns:
            total[:, :count] += part.index_select(1, rows[begin : begin + count]).to(exact)
            begin += count
        flat.index_copy_(1, keys, total.to(x.dtype))


def _flat(x: Tensor) -> Tensor:
    return x.view(x.shape[0], -1, x.shape[3]) if x.numel() else x.flatten(1, 2)


def _unpacked(table: Tensor, k: Tensor, v: Tensor) -> Sequence[Tensor]:
    """k's and v's channels of a table's rows, [batch, rows, dim] each."""
    both = table.view(len(table), k.shape[0], k.shape[3] + v.shape[3]).transpose(0, 1)
    return both.split([k.shape[3], v.shape[3]], -1)
