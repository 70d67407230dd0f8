"""Launch the Hopper backward: delta, the gradients by one of two ways, repairs, and what merges split lines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import triton
from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ..dropout import Dropout, as_arguments, drawn
from ..launcher import Launcher, launched, scratch
from ..triton.backward_query import prepare
from ..triton.lists import TileLists
from ..triton.words import words_of
from .backward import backward
from .backward_adding import backward_adding, finish_queries
from .launch import LOG2E, box, boxable, multiprocessors
from .overlap import overlapping
from .repair import repair_key, repair_parts, repair_query
from .schedule import Work, work_of

SUMMED = NVMMASharedLayout(128, 32, 2)
# By head dim, how many keys a query reads at least where float32 sums of dQ pay: to clear, add and finish them takes a
# time for each query, to do without two products more for each pair. Measured: notes/hopper.md.
KEYS_TO_ADD = {128: 800, 64: 256}
PREPARED = 16  # rows of an instance of `prepare`; by 64 it takes 2 to 9 % longer (notes/hopper.md)


@dataclass(frozen=True)
class Shape:
    """Rows of a streamed tile, buffers of the rows that stay, slots of the rings, registers of a thread.

    Where dQ is added up: whether V is held in registers.
    """

    rows: int
    buffers: int
    slots: int
    v_in_registers: bool = False
    consumer_registers: int = 240
    producer_registers: int = 24


def query_shape(dim: int, tile: int, dropout: bool = False) -> Shape:
    """Shape of the dQ program: the rings fill what shared memory two buffers of Q and dO leave.

    With dropout 64 keys a tile at D 64 too, by the compiler's word: in bands 24 bytes of stack for 232, with bit
    masks 16 for 864.
    """
    if dim == 128:
        return Shape(64, 2, 3)
    return Shape(min(tile, 64), 2, 8) if dropout else Shape(min(tile, 128), 2, 4)


def key_shape(dim: int, dropout: bool = False) -> Shape:
    """Shape of the dK, dV program: 64 queries a tile, or the sums of D 128 leave no registers for scores.

    With dropout 32 there, by the compiler's word: 80 bytes of stack for 392, in bands 88 for 440. D 64 has registers to
    spare without it, and its producer, that fetches numbers as well, would spill by the usual 24.
    """
    if dim == 128:
        return Shape(32, 2, 6) if dropout else Shape(64, 2, 3)
    return Shape(64, 2, 4) if dropout else Shape(64, 2, 4, consumer_registers=232, producer_registers=40)


def adding_shape(dim: int) -> Shape:
    """Shape of the program that adds dQ up: tiles of 8192 numbers, two buffers of K.

    Of V in registers the compiler of Triton 3.9 spills some in every tile.
    """
    return Shape(8192 // dim, 2, 2, v_in_registers=dim == 64 and triton.__version__.startswith("3.6."))


def pays_to_add(by_query: TileLists, dim: int) -> bool:
    """Whether the program that adds dQ up is the faster one, as far as the lists' sizes tell what a query reads.

    It also is where lines of queries are split: without sums their parts are merged.
    """
    keys = (len(by_query.full_units) + len(by_query.masked_units)) * by_query.granule
    return by_query.splits.shape[1] > 0 or keys >= KEYS_TO_ADD[dim] * (len(by_query.full_ptr) - 1)


def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    by_query: TileLists,
    by_key: TileLists,
    scale: float,
    deterministic: bool = False,
    shapes: tuple[Shape | None, Shape | None] = (None, None),
    dropout: Dropout | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv in the inputs' dtypes, scale > 0; bitwise repeatable if `deterministic` or with dropout.

    Else dQ is added up in the order in which tiles are done, which needs five products a tile and not seven.
    `shapes` are those of the dQ and the dK, dV program, or (None, that of the program that adds dQ up).
    That program has no dropout.
    """
    (batch, heads, q_len, dim), kv_heads, device = q.shape, k.shape[1], q.device
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=device) for x in (q, k, v))
    if not q.numel() or not k.numel():
        return dq.zero_(), dk.zero_(), dv.zero_()
    deterministic = deterministic or dropout is not None
    p, seed = drawn(dropout)
    whole = batch * heads * triton.cdiv(q_len, 64) * 64 * dim  # whole parts of 64 rows
    cleared = torch.empty(32 + (0 if deterministic else whole), dtype=torch.float32, device=device)  # by `prepare`
    flag, *counters = cleared[:3].view(torch.int32).split(1)
    sums = scratch(0, device) if deterministic else cleared[32:].view(-1, 32)
    rows = batch * heads * by_query.slots * by_query.line_size
    key_rows = batch * kv_heads * by_key.slots * by_key.line_size
    launched(
        by_query, ("hopper backward", by_key, scale, p, deterministic, shapes, dlse is None),
        (boxable(q), boxable(k), boxable(v), boxable(dout), out, lse, lse if dlse is None else dlse.contiguous(),
         *seed),
        (torch.empty_like(lse), torch.empty_like(lse), dq, dk, dv, flag, *counters, sums, scratch(rows * dim, device),
         scratch(key_rows * dim, device), scratch(key_rows * dim, device)),
        partial(_backward, by_query, by_key, scale, p, deterministic, shapes, dlse is not None),
    )  # fmt: skip
    return dq, dk, dv


def _backward(
    by_query: TileLists, by_key: TileLists, scale: float, p: float | None, deterministic: bool,
    shapes: tuple[Shape | None, Shape | None], has_dlse: bool, launch: Launcher,
    q: Tensor, k: Tensor, v: Tensor, dout: Tensor, out: Tensor, lse: Tensor, dlse: Tensor, *rest: Tensor,
) -> None:  # fmt: skip
    """The programs of one call; those of a repair end at once unless one before them has raised the flag."""
    *seed, lse2, delta, dq, dk, dv, flag, of_queries, of_keys, sums, part_q, part_k, part_v = rest
    (batch, heads, q_len, dim), (kv_heads, kv_len) = q.shape, k.shape[1:3]
    ratio, rows, drop = heads // kv_heads, (lse2, delta, flag), as_arguments(p, seed)
    launch(
        prepare, batch * heads * triton.cdiv(q_len, 64) * (64 // PREPARED),
        out, dout, lse, dlse, lse2, delta, flag, of_queries, of_keys, None if deterministic else sums,
        *dout.stride()[:3], heads, q_len,
        DV=dim, DV_PAD=dim, BM=PREPARED, HAS_DLSE=has_dlse, OVERLAPPED=bool(overlapping()),
    )  # fmt: skip
    merges = ((by_key, part_k, dk, kv_len, kv_heads, ratio), (by_key, part_v, dv, kv_len, kv_heads, ratio))
    if deterministic:
        own, other = (
            shapes[0] or query_shape(dim, by_query.tile, p is not None),
            shapes[1] or key_shape(dim, p is not None),
        )
        _stream(launch, by_query, own, (q, dout, k, v), (dq, dq), (part_q, part_q), (*rows, of_queries), scale, drop,
                by_key=False)  # fmt: skip
        _stream(launch, by_key, other, (k, v, q, dout), (dk, dv), (part_k, part_v), (*rows, of_keys), scale, drop,
                by_key=True)  # fmt: skip
        merges = ((by_query, part_q, dq, q_len, heads, 1), *merges)
    else:
        shape = shapes[1] or adding_shape(dim)
        _add(launch, by_key, shape, (k, v, q, dout), (dk, dv, sums), (part_k, part_v), (*rows, of_keys), scale)
        launch(
            finish_queries, batch * heads * triton.cdiv(q_len, 64) * (dim // 64),
            sums, dq, flag, scale, q_len, D=dim, num_warps=4, **overlapping(),
        )  # fmt: skip
    for merge in merges:
        _merge(launch, *merge, None)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *dout.stride()[:3])
    few = 2 * multiprocessors(q.device)  # that walk the portable programs, if there is something to repair
    programs = batch * heads * by_query.jobs.shape[1] * (by_query.line_size // 64)
    launch(
        repair_query, min(few, programs),
        flag, q, k, v, dout, lse2, delta, dq, part_q, *by_query.walked, *strides, scale * LOG2E, scale, q_len, kv_len,
        by_query.jobs.shape[1], heads, ratio, by_query.slots, by_query.lines, programs, *drop,
        D=dim, BM=64, BN=64, DROPOUT=p is not None, **dict(by_query.constants), **overlapping(), num_warps=4,
    )  # fmt: skip
    programs = batch * kv_heads * by_key.jobs.shape[1] * (by_key.line_size // 64)
    launch(
        repair_key, min(few, programs),
        flag, q, k, v, dout, lse2, delta, dk, dv, part_k, part_v, *by_key.walked, *strides, scale * LOG2E, scale, q_len,
        kv_len, by_key.jobs.shape[1], kv_heads, ratio, by_key.slots, by_key.lines, programs, *drop,
        D=dim, BM=64, BN=64, DROPOUT=p is not None, **dict(by_key.constants), **overlapping(), num_warps=4,
    )  # fmt: skip
    for merge in ((by_query, part_q, dq, q_len, heads, 1), *merges[-2:]):
        _merge(launch, *merge, flag)


def _stream(
    launch: Launcher,
    lists: TileLists,
    shape: Shape,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    outputs: tuple[Tensor, Tensor],
    parts: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor, Tensor, Tensor],
    scale: float,
    drop: tuple[Tensor | None, int | None, float | None],
    by_key: bool,
) -> None:
    """One of the two programs of backward.py: the first two inputs stay, the others are streamed."""
    own, _, other, _ = inputs
    (batch, heads, own_len, dim), (other_heads, other_len) = own.shape, other.shape[1:3]
    ratio = max(heads, other_heads) // min(heads, other_heads)
    work = work_of(lists, batch, heads, ratio if by_key else 1)
    n = shape.rows
    streamed = (n, dim) if lists.granule >= n else (lists.granule, 64)
    launch(
        backward, min(multiprocessors(own.device), len(work.items)),
        *(box(x, 64, dim) for x in inputs[:2]), *(box(x, *streamed) for x in inputs[2:]),
        *(box(x, 64, dim) for x in outputs), *outputs, *parts, *rows,
        *_walked(lists, work, n, by_key), scale * LOG2E, scale, own_len, other_len, heads, ratio, *drop,
        BY_KEY=by_key, DROPOUT=drop[0] is not None, BUFFERS=shape.buffers, **_built(lists, shape, dim),
    )  # fmt: skip


def _add(
    launch: Launcher,
    lists: TileLists,
    shape: Shape,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    outputs: tuple[Tensor, Tensor, Tensor],
    parts: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor, Tensor, Tensor],
    scale: float,
) -> None:
    """The program of backward_adding.py: dK and dV of the keys that stay, and the sums of dQ."""
    k, _, q, _ = inputs
    dk, dv, sums = outputs
    (batch, kv_heads, kv_len, dim), (heads, q_len) = k.shape, q.shape[1:3]
    work = work_of(lists, batch, kv_heads, heads // kv_heads)
    n = shape.rows
    added = [256 if dim == 64 else 128, 32]  # two parts or one
    launch(
        backward_adding, min(multiprocessors(q.device), len(work.items)),
        *(box(x, 64, dim) for x in inputs[:2]), *(box(x, n, dim) for x in inputs[2:]), box(dk, 64, dim),
        box(dv, 64, dim), TensorDescriptor(sums, list(sums.shape), list(sums.stride()), added, SUMMED),
        dk, dv, *parts, *rows,
        *_walked(lists, work, n, by_key=True), scale * LOG2E, scale, kv_len, q_len, kv_heads, heads // kv_heads,
        **_built(lists, shape, dim), K_BUFFERS=shape.buffers, V_IN_REGISTERS=shape.v_in_registers,
    )  # fmt: skip


def _walked(lists: TileLists, work: Work, rows: int, by_key: bool) -> tuple[Tensor, ...]:
    """What either program walks, in tiles of so many rows."""
    _, full_units, _, masked_units, low, high, bits, _, _, _ = lists.walked
    return full_units, masked_units, low, high, bits, words_of(lists, rows, by_key), work.items, work.counts


def _built(lists: TileLists, shape: Shape, dim: int) -> dict[str, int | bool]:
    """What either program is compiled for."""
    return {
        "D": dim, "N": shape.rows, "GRANULE": lists.granule, "STEPS": lists.tile // shape.rows,
        "BLOCK_Q": lists.block_q, "BLOCK_K": lists.block_k, "HAS_BITS": lists.has_bits,
        "MASKED": lists.masked_units.numel() > 0, "SPLIT": lists.splits.shape[1] > 0,
        "SLOTS": shape.slots, "CONSUMER_REGISTERS": shape.consumer_registers,
        "PRODUCER_REGISTERS": shape.producer_registers, "num_warps": 4, "maxnreg": 168,
        **overlapping(),
    }  # fmt: skip


def _merge(
    launch: Launcher,
    lists: TileLists,
    part: Tensor,
    whole: Tensor,
    length: int,
    outer: int,
    ratio: int,
    flag: Tensor | None,
) -> None:
    """Add the parts of split lines, in one order; with a flag only if it is up."""
    n_splits, dim = lists.splits.shape[1], whole.shape[3]
    if n_splits:
        launch(
            repair_parts, whole.shape[0] * outer * n_splits * (lists.line_size // 64),
            flag, part, whole, lists.splits, lists.head_group, length, n_splits, outer, ratio, lists.slots,
            D=dim, D_PAD=dim, BM=64, BLOCK=lists.line_size, **dict(lists.groups), **overlapping(),
        )  # fmt: skip
