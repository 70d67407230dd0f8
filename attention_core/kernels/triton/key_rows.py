"""Rows of k and v on their way between ranks, moved by one Triton program a step for both tensors, as operators.

A table has one row for each chosen row, [batch, head_dim + value_dim]: k's channels, then v's. In plain torch (see
distributed/plain_rows.py, the definition) the same is an index kernel a tensor and copies between them, and for
gradients six passes a tensor: about as long as the rows take on NVLink.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import eager
from ..launcher import Launcher, launched

ROWS = 32  # of one program: those of 67,584 rows, 16 KB in flight each, are on an H200's multiprocessors all at once
_KEPT = SimpleNamespace()  # holds the recorded launches, whatever plan the rows belong to


@triton.jit
def _mine(n_rows, batch, BM: tl.constexpr):
    """First row, rows, which of them are real, and the batch entry, of one program. # [], [BM], [BM], [], int64"""
    program = tl.program_id(0).to(tl.int64)
    first = program // batch * BM
    row = first + tl.arange(0, BM)
    return first, row, row < n_rows, program % batch


@triton.jit
def _inside(real, D: tl.constexpr, D_PAD: tl.constexpr):
    """Channels, and which elements of the rows there are. # [1, D_PAD], [BM, D_PAD]"""
    d = tl.arange(0, D_PAD)[None, :]
    return d, real[:, None] & (d < D)


@triton.jit
def _read(x, entry, head, key, real, stride_b, stride_h, stride_n, D: tl.constexpr, D_PAD: tl.constexpr):
    """Rows of a tensor of any strides. # [BM, D_PAD]"""
    d, inside = _inside(real, D, D_PAD)
    at = x + entry * stride_b + head * stride_h + key * stride_n
    return tl.load(at[:, None] + d, mask=inside, other=0.0)


@triton.jit
def _write(to, row, entry, real, rows, values, D: tl.constexpr, D_PAD: tl.constexpr):
    """Rows of a contiguous tensor that has so many rows an entry of the batch."""
    d, inside = _inside(real, D, D_PAD)
    tl.store(to + ((entry * rows + row) * D)[:, None] + d, values.to(to.dtype.element_ty), mask=inside)


@triton.jit
def pack(k, v, table, index, slots, n_rows, batch, keys, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh,
         stride_vn, HAS_SLOTS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, DV: tl.constexpr,
         DV_PAD: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Rows `index` of k and v to rows `slots` of the table. Grid: [row tiles * batch]."""
    _, row, real, entry = _mine(n_rows, batch, BM)
    source = tl.load(index + row, mask=real, other=0)
    head, key = source // keys, source % keys
    to = tl.load(slots + row, mask=real, other=0) if HAS_SLOTS else row
    to = (table + (to * batch + entry) * (D + DV))[:, None]
    k_values = _read(k, entry, head, key, real, stride_kb, stride_kh, stride_kn, D, D_PAD)
    v_values = _read(v, entry, head, key, real, stride_vb, stride_vh, stride_vn, DV, DV_PAD)
    d, in_k = _inside(real, D, D_PAD)
    dv, in_v = _inside(real, DV, DV_PAD)
    tl.store(to + d, k_values.to(table.dtype.element_ty), mask=in_k)
    tl.store(to + D + dv, v_values.to(table.dtype.element_ty), mask=in_v)


@triton.jit
def put(table, place, take, k, v, n_rows, batch, rows_to, HAS_TAKE: tl.constexpr, D: tl.constexpr,
        D_PAD: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Rows `take` of the table to rows `place` of contiguous k and v. Grid: [row tiles * batch]."""
    _, row, real, entry = _mine(n_rows, batch, BM)
    source = tl.load(take + row, mask=real, other=0) if HAS_TAKE else row
    source = (table + (source * batch + entry) * (D + DV))[:, None]
    to = tl.load(place + row, mask=real, other=0)
    d, in_k = _inside(real, D, D_PAD)
    dv, in_v = _inside(real, DV, DV_PAD)
    k_values, v_values = tl.load(source + d, mask=in_k, other=0.0), tl.load(source + D + dv, mask=in_v, other=0.0)
    _write(k, to, entry, real, rows_to, k_values, D, D_PAD)
    _write(v, to, entry, real, rows_to, v_values, DV, DV_PAD)


@triton.jit
def move(k, v, index, k_to, v_to, n_rows, batch, keys, rows_to, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh,
         stride_vn, TAKE: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr,
         BM: tl.constexpr):  # fmt: skip
    """All rows of k and v to rows `index` of contiguous k_to and v_to; with TAKE rows `index` to all rows.

    Grid: [row tiles * batch].
    """
    _, row, real, entry = _mine(n_rows, batch, BM)
    chosen = tl.load(index + row, mask=real, other=0)
    source, to = (chosen, row) if TAKE else (row, chosen)
    head, key = source // keys, source % keys
    k_values = _read(k, entry, head, key, real, stride_kb, stride_kh, stride_kn, D, D_PAD)
    v_values = _read(v, entry, head, key, real, stride_vb, stride_vh, stride_vn, DV, DV_PAD)
    _write(k_to, to, entry, real, rows_to, k_values, D, D_PAD)
    _write(v_to, to, entry, real, rows_to, v_values, DV, DV_PAD)


@triton.jit
def add(table, keys, rows, ends, dk, dv, n_keys, batch, rows_to, D: tl.constexpr, D_PAD: tl.constexpr,
        DV: tl.constexpr, DV_PAD: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Each key's rows of the table, turn by turn, added to its row of dk and dv. Grid: [key tiles * batch]."""
    first, row, real, entry = _mine(n_keys, batch, BM)
    d, in_k = _inside(real, D, D_PAD)
    e, in_v = _inside(real, DV, DV_PAD)
    to = entry * rows_to + tl.load(keys + row, mask=real, other=0)
    k_at, v_at = dk + (to * D)[:, None] + d, dv + (to * DV)[:, None] + e
    k_sum = tl.load(k_at, mask=in_k, other=0.0).to(tl.float32)
    v_sum = tl.load(v_at, mask=in_v, other=0.0).to(tl.float32)
    turn, begin, end = 0, tl.load(ends), tl.load(ends + 1)
    while end - begin > first:  # no later turn has more keys, and the last one has none
        there = row < end - begin
        source = tl.load(rows + begin + row, mask=there, other=0)
        source = (table + (source * batch + entry) * (D + DV))[:, None]
        there = there[:, None]
        k_sum += tl.load(source + d, mask=there & in_k, other=0.0).to(tl.float32)
        v_sum += tl.load(source + D + e, mask=there & in_v, other=0.0).to(tl.float32)
        turn += 1
        begin = end
        end = tl.load(ends + turn + 1)
    tl.store(k_at, k_sum.to(dk.dtype.element_ty), mask=in_k)
    tl.store(v_at, v_sum.to(dv.dtype.element_ty), mask=in_v)


def _pack_rows(k: Tensor, v: Tensor, index: Tensor, slots: Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
    shape = count, k.shape[0] * (k.shape[3] + v.shape[3])
    if slots is None:
        table = torch.empty(shape, dtype=dtype, device=k.device)
    else:
        table = torch.zeros(shape, dtype=dtype, device=k.device)
    if index.numel() and table.numel():
        given = (_rows(k), _rows(v), index, *([] if slots is None else [slots]))
        launched(_KEPT, ("pack", count, dtype), given, (table,), _pack)
    return table


def _pack(launch: Launcher, k: Tensor, v: Tensor, index: Tensor, *rest: Tensor) -> None:
    *slots, table = rest
    launch(
        pack, _programs(index, k), k, v, table, index, slots[0] if slots else index, len(index), k.shape[0],
        k.shape[2], *k.stride()[:3], *v.stride()[:3], HAS_SLOTS=bool(slots), **_sizes(k, v),
    )  # fmt: skip


def _put_rows(table: Tensor, take: Tensor | None, place: Tensor, k: Tensor, v: Tensor) -> None:
    if place.numel() and k.shape[0]:
        given = (table.contiguous(), place, k, v, *([] if take is None else [take]))
        launched(_KEPT, "put", given, (), _put)


def _put(launch: Launcher, table: Tensor, place: Tensor, k: Tensor, v: Tensor, *take: Tensor) -> None:
    launch(
        put, _programs(place, k), table, place, take[0] if take else place, k, v, len(place), k.shape[0],
        k.shape[1] * k.shape[2], HAS_TAKE=bool(take), **_sizes(k, v),
    )  # fmt: skip


def _move_rows(k: Tensor, v: Tensor, index: Tensor, take: bool, k_to: Tensor, v_to: Tensor) -> None:
    if index.numel() and k.shape[0]:
        launched(_KEPT, ("move", take), (_rows(k), _rows(v), index, k_to, v_to), (), partial(_move, take))


def _move(take: bool, launch: Launcher, k: Tensor, v: Tensor, index: Tensor, k_to: Tensor, v_to: Tensor) -> None:
    launch(
        move, _programs(index, k), k, v, index, k_to, v_to, len(index), k.shape[0], k.shape[2],
        k_to.shape[1] * k_to.shape[2], *k.stride()[:3], *v.stride()[:3], TAKE=take, **_sizes(k, v),
    )  # fmt: skip


def _add_rows(table: Tensor, keys: Tensor, rows: Tensor, ends: Tensor, dk: Tensor, dv: Tensor) -> None:
    if keys.numel() and dk.shape[0]:
        launched(_KEPT, "add", (table.contiguous(), keys, rows, ends, dk, dv), (), _add)


def _add(launch: Launcher, table: Tensor, keys: Tensor, rows: Tensor, ends: Tensor, dk: Tensor, dv: Tensor) -> None:
    launch(
        add, _programs(keys, dk), table, keys, rows, ends, dk, dv, len(keys), dk.shape[0], dk.shape[1] * dk.shape[2],
        **_sizes(dk, dv),
    )  # fmt: skip


def _rows(x: Tensor) -> Tensor:
    """The tensor with neighbouring elements in a row; other strides are free."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _programs(rows: Tensor, k: Tensor) -> int:
    return triton.cdiv(len(rows), ROWS) * k.shape[0]


def _sizes(k: Tensor, v: Tensor) -> dict[str, int]:
    dim, value_dim = k.shape[3], v.shape[3]
    return {
        "D": dim, "D_PAD": triton.next_power_of_2(dim), "DV": value_dim, "DV_PAD": triton.next_power_of_2(value_dim),
        "BM": ROWS,
    }  # fmt: skip


pack_operator = torch.library.custom_op("pattern_studio::pack_rows", _pack_rows, mutates_args=())
put_operator = torch.library.custom_op("pattern_studio::put_rows", _put_rows, mutates_args=("k", "v"))
move_operator = torch.library.custom_op("pattern_studio::move_rows", _move_rows, mutates_args=("k_to", "v_to"))
add_operator = torch.library.custom_op("pattern_studio::add_rows", _add_rows, mutates_args=("dk", "dv"))


@pack_operator.register_fake
def _(k, v, index, slots, count, dtype):
    return k.new_empty((count, k.shape[0] * (k.shape[3] + v.shape[3])), dtype=dtype)


def pack_rows(k: Tensor, v: Tensor, index: Tensor, slots: Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
    """A table of `count` rows: rows `index` of k and v at `slots`, zeros elsewhere (no slots: in order)."""
    return (_pack_rows if eager.nobody_looks(k, v, index) else pack_operator)(k, v, index, slots, count, dtype)


def put_rows(table: Tensor, take: Tensor | None, place: Tensor, k: Tensor, v: Tensor) -> None:
    """Rows `take` of a table (None: all) into rows `place` of contiguous k and v."""
    (_put_rows if eager.nobody_looks(table, k, v) else put_operator)(table, take, place, k, v)


def move_rows(k: Tensor, v: Tensor, index: Tensor, take: bool, k_to: Tensor, v_to: Tensor) -> None:
    """All rows of k and v into rows `index` of contiguous k_to and v_to, or the reverse: rows `index` into all."""
    (_move_rows if eager.nobody_looks(k, v, k_to) else move_operator)(k, v, index, take, k_to, v_to)


def add_rows(table: Tensor, keys: Tensor, rows: Tensor, ends: Tensor, dk: Tensor, dv: Tensor) -> None:
    """Rows of a table added to rows `keys` of contiguous dk and dv: turn t adds rows[ends[t]:ends[t + 1]].

    A turn's first row belongs to the first key, and so on; each turn has at most as many as the one before, the last
    none. Sums are float32, in the order of the turns, and rounded once.
    """
    (_add_rows if eager.nobody_looks(table, dk, dv) else add_operator)(table, keys, rows, ends, dk, dv)
