"""Rows of k and v between shards, tables and buffers: one Triton program each on a GPU, plain torch elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.fused import DTYPES, INSTALLED
from . import plain_rows
from .transfer import Returned, Transfer


def chosen(k: Tensor, v: Tensor, index: Tensor) -> Tensor:
    """A table of the rows `index` of k and v, in their dtype (both, if they differ)."""
    return _packed(k, v, index, None, len(index), torch.promote_types(k.dtype, v.dtype))


def spread(k: Tensor, v: Tensor, index: Tensor, slots: Tensor, count: int) -> Tensor:
    """Rows `index` of k and v as rows `slots` of a table of so many, otherwise 0, in float32 at least: to be summed."""
    exact = torch.promote_types(torch.promote_types(k.dtype, v.dtype), torch.float32)
    return _packed(k, v, index, slots, count, exact)


def buffers(k: Tensor, v: Tensor, transfer: Transfer, length: int) -> tuple[Tensor, Tensor]:
    """Contiguous room for `length` keys like k and v; where a transfer leaves gaps, they hold 0."""
    made = [(x.new_empty if transfer.full else x.new_zeros)((*x.shape[:2], length, x.shape[3])) for x in (k, v)]
    return made[0], made[1]


def put(table: Tensor, take: Tensor | None, place: Tensor, k: Tensor, v: Tensor) -> None:
    """Rows `take` of a table (None: all) into rows `place` of contiguous k and v, in their dtypes."""
    if _served(k, v):
        from ..kernels.triton.key_rows import put_rows  # here: Triton is not installed everywhere

        put_rows(table, take, place, k, v)
    else:
        plain_rows.put_rows(table, take, place, k, v)


def move(k: Tensor, v: Tensor, index: Tensor, k_to: Tensor, v_to: Tensor, *, take: bool = False) -> None:
    """All rows of k and v into rows `index` of contiguous k_to and v_to, or with `take` rows `index` into all."""
    if _served(k, v):
        from ..kernels.triton.key_rows import move_rows  # here: Triton is not installed everywhere

        move_rows(k, v, index, take, k_to, v_to)
    else:
        plain_rows.move_rows(k, v, index, take, k_to, v_to)


def add_back(table: Tensor, returned: Returned, dk: Tensor, dv: Tensor) -> None:
    """Add the gradients that came back to those of contiguous dk and dv, in place.

    A key's own gradient and those of all ranks that read it are summed in float32 at least, in the order of the
    ranks, and rounded once.
    """
    if _served(dk, dv):
        from ..kernels.triton.key_rows import add_rows  # here: Triton is not installed everywhere

        add_rows(table, returned.keys, returned.rows, returned.ends, dk, dv)
    else:
        plain_rows.add_rows(table, returned.keys, returned.rows, returned.turns, dk, dv)


def _packed(k: Tensor, v: Tensor, index: Tensor, slots: Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
    if _served(k, v):
        from ..kernels.triton.key_rows import pack_rows  # here: Triton is not installed everywhere

        return pack_rows(k, v, index, slots, count, dtype)
    return plain_rows.pack_rows(k, v, index, slots, count, dtype)


def _served(k: Tensor, v: Tensor) -> bool:
    return k.is_cuda and INSTALLED and k.dtype in DTYPES and v.dtype in DTYPES
