"""merge in one pass over the parts each way: two Triton programs, as an operator.

In plain torch the same is a dozen passes over tensors of q's size, some of them in float32: for a window and sinks
over 131,072 tokens that would be a third of a rank's time.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 32  # of one program


@triton.jit
def merge_forward(OUTS, LSES, OUT, LSE, n_rows, PARTS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
                  BM: tl.constexpr):  # fmt: skip
    """out and lse of BM rows over all parts. Grid: [row tiles]."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    d = tl.arange(0, D_PAD)
    real = row < n_rows
    inside = real[:, None] & (d < D)[None, :]
    at = row[:, None] * D + d[None, :]
    most = tl.full([BM], -float("inf"), tl.float32)
    for n in tl.static_range(PARTS):
        most = tl.maximum(most, tl.load(LSES[n] + row, mask=real, other=-float("inf")))
    reference = tl.where(most == -float("inf"), 0.0, most)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D_PAD], tl.float32)
    for n in tl.static_range(PARTS):
        weight = tl.exp(tl.load(LSES[n] + row, mask=real, other=-float("inf")) - reference)
        total += weight
        acc += weight[:, None] * tl.load(OUTS[n] + at, mask=inside, other=0.0).to(tl.float32)
    some = total > 0
    safe = tl.where(some, total, 1.0)
    tl.store(OUT + at, (acc / safe[:, None]).to(OUT.dtype.element_ty), mask=inside)
    tl.store(LSE + row, tl.where(some, most + tl.log(safe), -float("inf")), mask=real)


@triton.jit
def merge_backward(OUTS, LSES, LSE, D_OUT, D_LSE, D_OUTS, D_LSES, n_rows, PARTS: tl.constexpr, HAS_D_LSE: tl.constexpr,
                   D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Gradients of every part's out and lse for BM rows. Grid: [row tiles]."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    d = tl.arange(0, D_PAD)
    real = row < n_rows
    inside = real[:, None] & (d < D)[None, :]
    at = row[:, None] * D + d[None, :]
    lse = tl.load(LSE + row, mask=real, other=-float("inf"))
    some = lse != -float("inf")
    reference = tl.where(some, lse, 0.0)
    d_out = tl.load(D_OUT + at, mask=inside, other=0.0).to(tl.float32)
    # The row of the merged output is not read again, nor its rounding: it is what the weights make of the parts.
    delta = tl.zeros([BM], tl.float32)
    for n in tl.static_range(PARTS):
        part = tl.load(LSES[n] + row, mask=real, other=-float("inf"))
        weight = tl.where(some, tl.exp(part - reference), 0.0)
        out = tl.load(OUTS[n] + at, mask=inside, other=0.0).to(tl.float32)
        delta += weight * tl.sum(d_out * out, 1)
    if HAS_D_LSE:
        delta -= tl.load(D_LSE + row, mask=real, other=0.0)
    for n in tl.static_range(PARTS):
        part = tl.load(LSES[n] + row, mask=real, other=-float("inf"))
        weight = tl.where(some, tl.exp(part - reference), 0.0)
        out = tl.load(OUTS[n] + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(D_OUTS[n] + at, (weight[:, None] * d_out).to(D_OUT.dtype.element_ty), mask=inside)
        tl.store(D_LSES[n] + row, weight * (tl.sum(d_out * out, 1) - delta), mask=real)


@torch.library.custom_op("pattern_studio::merge_parts", mutates_args=())
def merge_parts(outs: list[Tensor], lses: list[Tensor]) -> tuple[Tensor, Tensor]:
    """out and lse over all parts; float32 lse, out in the parts' dtype."""
    outs, lses = [x.contiguous() for x in outs], [x.contiguous() for x in lses]
    out, lse = torch.empty_like(outs[0]), torch.empty_like(lses[0])
    if lse.numel():
        merge_forward[_grid(lse)](tuple(outs), tuple(lses), out, lse, lse.numel(), **_sizes(outs))
    return out, lse


@merge_parts.register_fake
def _(outs, lses):
    return outs[0].new_empty(outs[0].shape), lses[0].new_empty(lses[0].shape)


@torch.library.custom_op("pattern_studio::merge_parts_backward", mutates_args=())
def merge_parts_backward(
    outs: list[Tensor], lses: list[Tensor], lse: Tensor, dout: Tensor, dlse: Tensor | None
) -> list[Tensor]:
    """Gradients of all outs, then of all lses."""
    outs, lses, dout = [x.contiguous() for x in outs], [x.contiguous() for x in lses], dout.contiguous()
    douts, dlses = [torch.empty_like(x) for x in outs], [torch.empty_like(x) for x in lses]
    if lse.numel():
        merge_backward[_grid(lse)](
            tuple(outs), tuple(lses), lse, dout, lse if dlse is None else dlse.contiguous(), tuple(douts), tuple(dlses),
            lse.numel(), HAS_D_LSE=dlse is not None, **_sizes(outs),
        )  # fmt: skip
    return [*douts, *dlses]


@merge_parts_backward.register_fake
def _(outs, lses, lse, dout, dlse):
    return [x.new_empty(x.shape) for x in (*outs, *lses)]


def _keep(ctx, inputs, output):
    outs, lses = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*outs, *lses, output[1])


def _backward(ctx, dout, dlse):
    *parts, lse = ctx.saved_tensors
    half = len(parts) // 2
    outs, lses = parts[:half], parts[half:]
    dout = torch.zeros_like(outs[0]) if dout is None else dout
    found = merge_parts_backward(outs, lses, lse, dout, dlse)
    return found[:half], found[half:]


merge_parts.register_autograd(_backward, setup_context=_keep)


def _grid(lse: Tensor) -> tuple[int]:
    return (triton.cdiv(lse.numel(), ROWS),)


def _sizes(outs: list[Tensor]) -> dict[str, int]:
    dim = outs[0].shape[3]
    return {"PARTS": len(outs), "D": dim, "D_PAD": triton.next_power_of_2(dim), "BM": ROWS}
