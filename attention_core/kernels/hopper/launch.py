"""Launch the Hopper programs: boxes, rings, grids. Tensors and TileLists in, tensors out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache, partial

import torch
import triton
from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ..dropout import Dropout, as_arguments, drawn
from ..launcher import Launcher, launched, scratch
from ..triton.forward import merge
from ..triton.lists import TileLists
from ..triton.words import words_of
from .forward import forward as forward_program
from .overlap import overlapping
from .repair import repair
from .schedule import ROWS, work_of

LOG2E = 1.4426950408889634
BOXED = NVMMASharedLayout(128, 16, 4)
REPAIRED = 32  # programs of the portable forward that one program looks after


@dataclass(frozen=True)
class Variant:
    """How a program is built: slots of its rings, and the options that forward.py explains.

    With at least `claimed_from` entries a program they are claimed one by one.
    """

    k_slots: int
    v_slots: int
    turns: bool
    ahead: bool
    frozen: bool
    claimed_from: int = 8
    consumer_registers: int = 240
    producer_registers: int = 24


def forward_variant(dim: int, dtype: torch.dtype, dropout: bool = False) -> Variant:
    """The variant that `attention_forward` takes unless it is given one.

    D 128 fills shared memory with 2 + 3 slots, D 64 with 4 + 4. Turns and issuing ahead pay at D 64 only (measured:
    notes/hopper.md), and beside dropout they do not. float16 can't hold P above 65504, so it
    follows the running maximum.
    """
    frozen, ahead = dtype == torch.bfloat16, dim == 64 and not dropout
    return Variant(2, 3, ahead, ahead, frozen) if dim == 128 else Variant(4, 4, ahead, ahead, frozen)


@cache
def multiprocessors(device: torch.device) -> int:
    """Programs in flight, one on each multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def boxable(x: Tensor) -> Tensor:
    """The tensor, copied unless the copy engine can read it: unit last stride, starts and strides of 16 bytes."""
    even = x.is_contiguous() or _even(x.shape, x.stride(), x.element_size())
    return x if even and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)


@lru_cache(4096)
def _even(shape: torch.Size, strides: tuple[int, ...], bytes_each: int) -> bool:
    sized = [stride for stride, size in zip(strides[:3], shape[:3], strict=True) if size > 1]
    return strides[3] == 1 and all(s > 0 and s * bytes_each % 16 == 0 for s in sized)


def box(x: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A descriptor of `rows` x `columns` boxes of [batch, heads, length, dim]; what lies past the end is 0."""
    # The stride of a dimension of size 1 means nothing, yet the copy engine looks at it.
    strides = [s if n > 1 else x.shape[3] * 8 for s, n in zip(x.stride()[:3], x.shape[:3], strict=True)] + [1]
    return TensorDescriptor(x, list(x.shape), strides, [1, 1, rows, columns], BOXED)


def attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: TileLists,
    scale: float,
    variant: Variant | None = None,
    dropout: Dropout | None = None,
) -> tuple[Tensor, Tensor]:
    """out [batch, heads, q_len, head_dim] in q's dtype and lse float32 [batch, heads, q_len]; scale > 0."""
    (batch, heads, q_len, dim), device = q.shape, q.device
    out = torch.empty(q.shape, dtype=q.dtype, device=device)
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=device)
    if not out.numel():
        return out, lse
    if not k.shape[2]:
        return out.zero_(), lse.fill_(-torch.inf)
    rows = batch * heads * lists.slots * lists.line_size
    parts = scratch(rows * dim, device), scratch(rows, device)
    entries = batch * heads * lists.jobs.shape[1] * (lists.line_size // ROWS.value)
    p, seed = drawn(dropout)
    variant = variant or forward_variant(dim, q.dtype, p is not None)
    claimed = entries >= variant.claimed_from * multiprocessors(device)
    counter = torch.zeros(1, dtype=torch.int32, device=device) if claimed else scratch(0, device)
    launched(
        lists, ("hopper", scale, variant, p, claimed), (boxable(q), boxable(k), boxable(v), *seed),
        (out, lse, *parts, counter), partial(_forward, lists, scale, variant, p, claimed),
    )  # fmt: skip
    return out, lse


def _forward(
    lists: TileLists, scale: float, variant: Variant, p: float | None, claimed: bool, launch: Launcher,
    q: Tensor, k: Tensor, v: Tensor, *rest: Tensor,
) -> None:  # fmt: skip
    """The programs of one call: all tiles, rows to be repaired, parts to be merged."""
    *seed, out, lse, part_out, part_lse, counter = rest
    (batch, heads, q_len, dim), (kv_heads, kv_len) = q.shape, k.shape[1:3]
    work = work_of(lists, batch, heads)
    n, granule = lists.tile, min(lists.granule, lists.tile)
    key_box = (n, dim) if granule == n else (granule, 64)
    n_splits, slots = lists.splits.shape[1], lists.slots
    groups, drop = dict(lists.groups), as_arguments(p, seed)
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs = lists.walked
    launch(
        forward_program, min(multiprocessors(q.device), len(work.items)),
        box(q, 64, dim), box(k, *key_box), box(v, *key_box), box(out, 64, dim), out, lse, part_out, part_lse,
        full_units, masked_units, low, high, bits, words_of(lists, n, by_key=False), work.items, work.counts,
        counter, scale * LOG2E, q_len, kv_len, heads, heads // kv_heads, *drop,
        D=dim, N=n, GRANULE=granule, BLOCK_Q=lists.block_q, BLOCK_K=lists.block_k, HAS_BITS=lists.has_bits,
        MASKED=masked_units.numel() > 0, SPLIT=n_splits > 0, K_SLOTS=variant.k_slots, V_SLOTS=variant.v_slots,
        TURNS=variant.turns, AHEAD=variant.ahead, FROZEN=variant.frozen, DROPOUT=p is not None, CLAIMED=claimed,
        CONSUMER_REGISTERS=variant.consumer_registers, PRODUCER_REGISTERS=variant.producer_registers,
        num_warps=4, maxnreg=168,
    )  # fmt: skip
    n_jobs = lists.jobs.shape[1]
    programs = batch * heads * n_jobs * triton.cdiv(lists.line_size, 128)
    launch(
        repair, triton.cdiv(programs, REPAIRED),
        work.counts[2:], q, k, v, out, lse, part_out, part_lse,
        full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        scale * LOG2E, q_len, kv_len, n_jobs, heads, heads // kv_heads, slots, lists.lines, programs, *drop,
        D=dim, BM=128, BN=64, TILE=n, GRANULE=lists.granule, BLOCK_Q=lists.block_q, BLOCK_K=lists.block_k,
        HAS_BITS=lists.has_bits, DROPOUT=p is not None, MANY=REPAIRED, **groups, **overlapping(), num_warps=8,
    )  # fmt: skip
    if n_splits:
        launch(
            merge, batch * heads * n_splits * triton.cdiv(lists.line_size, 64),
            part_out, part_lse, out, lse, lists.splits, lists.head_group, q_len, n_splits, heads, slots,
            DV=dim, DV_PAD=dim, BM=64, BLOCK_Q=lists.block_q, **groups,
        )  # fmt: skip
