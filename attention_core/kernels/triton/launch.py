"""Launch the Triton programs: tile shapes, grids, scratch. Tensors and TileLists in, tensors out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ..dropout import Dropout, as_arguments, drawn
from ..launcher import Launcher, launched, scratch
from .backward_key import backward_key
from .backward_query import backward_query, prepare, sum_parts
from .forward import forward as forward_kernel
from .forward import merge
from .lists import TileLists
from .words import walked

LOG2E = 1.4426950408889634
WIDEST = 256  # the largest head_dim or value_dim


@dataclass(frozen=True)
class Shape:
    """Tile shape of one program: rows of its own side, positions of the other, warps, pipeline stages."""

    own: int
    other: int
    warps: int
    stages: int


def _power(n: int) -> int:
    return max(16, triton.next_power_of_2(n))


def _own(block: int, most: int) -> int:
    return min(_power(block), most)


def forward_shape(lists: TileLists, wide: int, bytes_each: int) -> Shape:
    """Best of a sweep on H100 (benchmarks/notes/triton.md).

    With bit masks 8 warps, by the compiler's word: 4 have no registers for them, 2,536 bytes of stack a thread.
    """
    if bytes_each == 4 or wide > 128:
        return Shape(_own(lists.line_size, 64), 32, 4, 1 if bytes_each == 4 else 2)
    if lists.has_bits:
        return Shape(_own(lists.line_size, 128), 64, 8, 2)
    gathered = lists.granule < 64
    return Shape(_own(lists.line_size, 128), 64, 4, 3 if wide > 64 and not gathered else 2)


def query_shape(lists: TileLists, wide: int, bytes_each: int, scatter: bool) -> Shape:
    """Tile shape of the dQ program; adding dK and dV to gathered keys wants the larger one."""
    if bytes_each == 4 or wide > 128:
        return Shape(_own(lists.line_size, 32), 32, 4, 1)
    if scatter and wide > 64:
        return Shape(_own(lists.line_size, 128), 64, 8, 3)
    return Shape(_own(lists.line_size, 64 if wide > 64 else 128), 64, 4, 2)


def key_shape(lists: TileLists, wide: int, bytes_each: int) -> Shape:
    """Tile shape of the dK, dV program."""
    if bytes_each == 4 or wide > 128:
        return Shape(_own(lists.line_size, 32), 32, 4, 1)
    return Shape(_own(lists.line_size, 64), 64, 4, 2)


def _other(lists: TileLists, wanted: int) -> int:
    return min(wanted, lists.tile)


def _rows(x: Tensor) -> Tensor:
    """The tensor with neighbouring elements in a row; other strides are free."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


@cache
def _has_copy_engine(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def _box(x: Tensor, rows: int, width: int, granule: int) -> TensorDescriptor | None:
    """A descriptor of `rows` x `width` boxes for the copy engine, or None where rows are gathered, unaligned or none.

    Needs compute capability 9.0, 16-byte aligned starts and strides, and tiles of neighbouring rows.
    """
    aligned = x.data_ptr() % 16 == 0 and all(s * x.element_size() % 16 == 0 for s in x.stride()[:3])
    if granule < rows or not x.numel() or not aligned or not _has_copy_engine(x.device):
        return None
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, width])


@cache
def _constants(
    own_name: str, other_name: str, shape: Shape, other: int, dim: int, value_dim: int, dtype: torch.dtype,
    lists: tuple[tuple[str, int | bool], ...], boxes: bool, dropout: bool,
) -> dict[str, object]:  # fmt: skip
    """Compile-time arguments of the three large programs, made once for each kind of call."""
    return {
        "D": dim, "D_PAD": _power(dim), "DV": value_dim, "DV_PAD": _power(value_dim),
        own_name: shape.own, other_name: other, **dict(lists), "BOXES": boxes, "DROPOUT": dropout,
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",  # half precision ignores it
        "STAGES": shape.stages, "num_warps": shape.warps,
    }  # fmt: skip


def attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: TileLists,
    scale: float,
    dropout: Dropout | None = None,
    shape: Shape | None = None,
) -> tuple[Tensor, Tensor]:
    """out [batch, heads, q_len, value_dim] in q's dtype and lse float32 [batch, heads, q_len]."""
    (batch, heads, q_len, _), value_dim, device = q.shape, v.shape[3], q.device
    out = torch.empty((batch, heads, q_len, value_dim), dtype=q.dtype, device=device)
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=device)
    if not out.numel():
        return out, lse
    rows = batch * heads * lists.slots * lists.line_size
    p, seed = drawn(dropout)
    launched(
        lists, ("forward", scale, p, shape), (_rows(q), _rows(k), _rows(v), *seed),
        (out, lse, scratch(rows * value_dim, device), scratch(rows, device)),
        partial(_forward, lists, scale, p, shape),
    )  # fmt: skip
    return out, lse


def _forward(
    lists: TileLists, scale: float, p: float | None, shape: Shape | None, launch: Launcher,
    q: Tensor, k: Tensor, v: Tensor, *rest: Tensor,
) -> None:  # fmt: skip
    """The programs of one call: all tiles, then the parts of split lines."""
    *seed, out, lse, part_out, part_lse = rest
    (batch, heads, q_len, dim), (kv_heads, kv_len, value_dim) = q.shape, (*k.shape[1:3], v.shape[3])
    shape = shape or forward_shape(lists, max(dim, value_dim), q.element_size())
    n_jobs, n_splits, slots = lists.jobs.shape[1], lists.splits.shape[1], lists.slots
    row_tiles = triton.cdiv(lists.line_size, shape.own)
    other = _other(lists, shape.other)
    k_box, v_box = (_box(x, other, _power(x.shape[3]), lists.granule) for x in (k, v))
    boxes = k_box is not None and v_box is not None
    launch(
        forward_kernel, batch * heads * n_jobs * row_tiles,
        q, k, v, k_box if boxes else k, v_box if boxes else v, out, lse, part_out, part_lse,
        *walked(lists, other, by_key=False),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        scale * LOG2E, q_len, kv_len, n_jobs, heads, heads // kv_heads, slots, lists.lines, *as_arguments(p, seed),
        **_constants("BM", "BN", shape, other, dim, value_dim, q.dtype, lists.constants, boxes, p is not None),
    )  # fmt: skip
    if n_splits:
        launch(
            merge, batch * heads * n_splits * row_tiles,
            part_out, part_lse, out, lse, lists.splits, lists.head_group, q_len, n_splits, heads, slots,
            DV=value_dim, DV_PAD=_power(value_dim), BM=shape.own, BLOCK_Q=lists.block_q, **dict(lists.groups),
        )  # fmt: skip


def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    by_query: TileLists,
    by_key: TileLists | None,
    scale: float,
    dropout: Dropout | None = None,
    shapes: tuple[Shape | None, Shape | None] = (None, None),
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv in the inputs' dtypes. Without `by_key` lists dK and dV are added by atomics, in any order."""
    (batch, heads, _, dim), kv_heads, value_dim, device = q.shape, k.shape[1], v.shape[3], q.device
    dq = torch.empty(q.shape, dtype=q.dtype, device=device)
    scatter = by_key is None
    gradients = torch.zeros if scatter or not q.numel() else torch.empty
    sums = torch.float32 if scatter else k.dtype
    dk, dv = gradients(k.shape, dtype=sums, device=device), gradients(v.shape, dtype=sums, device=device)
    if not out.numel():
        return dq.zero_(), dk.zero_().to(k.dtype), dv.zero_().to(v.dtype)
    rows = batch * heads * by_query.slots * by_query.line_size
    key_rows = 0 if by_key is None else batch * kv_heads * by_key.slots * by_key.line_size
    p, seed = drawn(dropout)
    launched(
        by_query, ("backward", by_key, scale, p, shapes, dlse is None),
        (_rows(q), _rows(k), _rows(v), _rows(dout), out, lse, lse if dlse is None else dlse.contiguous(), *seed),
        (torch.empty_like(lse), torch.empty_like(lse), dq, dk, dv, scratch(rows * dim, device),
         scratch(key_rows * dim, device), scratch(key_rows * value_dim, device)),
        partial(_backward, by_query, by_key, scale, p, shapes, dlse is not None),
    )  # fmt: skip
    if scatter:
        return dq, dk.mul_(scale).to(k.dtype), dv.to(v.dtype)
    return dq, dk, dv


def _backward(
    by_query: TileLists, by_key: TileLists | None, scale: float, p: float | None,
    shapes: tuple[Shape | None, Shape | None], has_dlse: bool, launch: Launcher,
    q: Tensor, k: Tensor, v: Tensor, dout: Tensor, out: Tensor, lse: Tensor, dlse: Tensor, *rest: Tensor,
) -> None:  # fmt: skip
    """The programs of one call: what both sides need, dQ by queries, dK and dV by keys, parts of split lines."""
    *seed, lse2, delta, dq, dk, dv, part, part_k, part_v = rest
    (batch, heads, q_len, dim), (kv_heads, kv_len, value_dim) = q.shape, (*k.shape[1:3], v.shape[3])
    wide, bytes_each, scatter = max(dim, value_dim), q.element_size(), by_key is None
    mine = shapes[0] or query_shape(by_query, wide, bytes_each, scatter)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *dout.stride()[:3])
    ratio, dropped = heads // kv_heads, p is not None
    launch(
        prepare, batch * heads * triton.cdiv(q_len, 64),
        out, dout, lse, dlse, lse2, delta, None, None, None, None, *dout.stride()[:3], heads, q_len,
        DV=value_dim, DV_PAD=_power(value_dim), BM=64, HAS_DLSE=has_dlse,
    )  # fmt: skip
    n_jobs, n_splits, slots = by_query.jobs.shape[1], by_query.splits.shape[1], by_query.slots
    row_tiles = triton.cdiv(by_query.line_size, mine.own)
    other = _other(by_query, mine.other)
    k_box, v_box = (_box(x, other, _power(x.shape[3]), by_query.granule) for x in (k, v))
    boxes = k_box is not None and v_box is not None and not scatter
    launch(
        backward_query, batch * heads * n_jobs * row_tiles,
        q, k, v, k_box if boxes else k, v_box if boxes else v, dout, lse2, delta, dq, part, dk, dv,
        *walked(by_query, other, by_key=False), *strides,
        scale * LOG2E, scale, q_len, kv_len, n_jobs, heads, ratio, slots, by_query.lines,
        *as_arguments(p, seed), SCATTER=scatter,
        **_constants("BM", "BN", mine, other, dim, value_dim, q.dtype, by_query.constants, boxes, dropped),
    )  # fmt: skip
    if n_splits:
        launch(
            sum_parts, batch * heads * n_splits * row_tiles,
            part, dq, by_query.splits, by_query.head_group, q_len, n_splits, heads, 1, slots,
            D=dim, D_PAD=_power(dim), BM=mine.own, BLOCK=by_query.line_size, **dict(by_query.groups),
        )  # fmt: skip
    if by_key is None:
        return
    theirs = shapes[1] or key_shape(by_key, wide, bytes_each)
    n_jobs, n_splits, slots = by_key.jobs.shape[1], by_key.splits.shape[1], by_key.slots
    key_tiles = triton.cdiv(by_key.line_size, theirs.own)
    other = _other(by_key, theirs.other)
    q_box, dout_box = (_box(x, other, _power(x.shape[3]), by_key.granule) for x in (q, dout))
    boxes = q_box is not None and dout_box is not None
    launch(
        backward_key, batch * kv_heads * n_jobs * key_tiles,
        q, k, v, dout, q_box if boxes else q, dout_box if boxes else dout, lse2, delta, dk, dv, part_k, part_v,
        *walked(by_key, other, by_key=True), *strides,
        scale * LOG2E, scale, q_len, kv_len, n_jobs, kv_heads, ratio, slots, by_key.lines,
        *as_arguments(p, seed),
        **_constants("BN", "BM", theirs, other, dim, value_dim, q.dtype, by_key.constants, boxes, dropped),
    )  # fmt: skip
    for partial_sums, whole, width in ((part_k, dk, dim), (part_v, dv, value_dim)) if n_splits else ():
        launch(
            sum_parts, batch * kv_heads * n_splits * key_tiles,
            partial_sums, whole, by_key.splits, by_key.head_group, kv_len, n_splits, kv_heads, ratio, slots,
            D=width, D_PAD=_power(width), BM=theirs.own, BLOCK=by_key.line_size, **dict(by_key.groups),
        )  # fmt: skip
