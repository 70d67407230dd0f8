"""Inputs, gradients and devices for the kernel tests."""

from __future__ import annotations

import torch
from torch import Tensor

from attention_core import Plan, block_sparse_attention
from attention_core.kernels.hopper.schedule import Work, work_of
from attention_core.kernels.triton.lists import TileLists

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DEVICE = DEVICES[-1]  # where fused kernels run: on the CPU in Triton's interpreter, which is for machines without a GPU
BACKENDS = ["blocked", "reference"]


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    """Normal numbers that depend on seed and shape only."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(device=device, dtype=dtype)


def qkv(
    batch: int,
    heads: int,
    kv_heads: int,
    q_len: int,
    kv_len: int,
    dim: int,
    value_dim: int,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v that want gradients."""
    shapes = (batch, heads, q_len, dim), (batch, kv_heads, kv_len, dim), (batch, kv_heads, kv_len, value_dim)
    q, k, v = (normal(*s, seed=n, dtype=dtype, device=device).requires_grad_() for n, s in enumerate(shapes))
    return q, k, v


def upstream(out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """Fixed normal gradients for out and lse, of empty rows too."""
    d_out = normal(*out.shape, seed=10, dtype=out.dtype, device=str(out.device))
    return d_out, normal(*lse.shape, seed=11, dtype=lse.dtype, device=str(lse.device))


def gradients(
    out: Tensor, lse: Tensor, inputs: tuple[Tensor, ...], d: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, ...]:
    """(out, lse, dq, dk, dv) under upstream gradients `d` on (out, lse), by default `upstream()`."""
    found = torch.autograd.grad((out, lse), inputs, upstream(out, lse) if d is None else d)
    return out.detach(), lse.detach(), *found


def run(q: Tensor, k: Tensor, v: Tensor, plan: Plan, backend: str = "auto", scale: float | None = None):
    """(out, lse, dq, dk, dv) of block_sparse_attention."""
    out, lse = block_sparse_attention(q, k, v, plan, scale=scale, return_lse=True, backend=backend)
    return gradients(out, lse, (q, k, v))


def assert_same(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...], tolerance: float) -> None:
    """Compare (out, lse, dq, dk, dv); -inf equals -inf, NaN equals nothing."""
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), got, wanted, strict=True):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, check_dtype=False, msg=lambda text, name=name: f"{name}: {text}"
        )


def work_table(lists: TileLists, *sizes: int) -> Work:
    """The Hopper programs' work table on the CPU, made where Triton programs run."""
    work = work_of(lists.to(DEVICE), *sizes)
    return Work(work.items.cpu(), work.counts.cpu())
