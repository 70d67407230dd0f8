"""Correctness cells of the Hopper kernels: small problems, each with something that can go wrong, by name.

The GPU tests run them against float64 on every fused backend, and `benchmarks.hopper_variants` on a card
that is lent for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import pattern_studio as ps
from attention_core import Plan, block_sparse_attention, plan, plan_from_mask
from attention_core.kernels import reference

NAMES = ("out", "lse", "dq", "dk", "dv")
Inputs = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Cell:
    """A plan, the shapes around it, and what is done to the inputs before they are used."""

    plan: Callable[[str], Plan]
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    scale: float | None = None
    change: Callable[[Inputs], Inputs] = field(default=lambda inputs: inputs)
    ordinary: bool = True  # else only the forward is compared: a gradient has no digits left there, or is NaN
    halves: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)

    def inputs(self, dtype: torch.dtype, dim: int, device: str) -> Inputs:
        """q, k, v of normal numbers, as `change` leaves them."""
        ready, generator = self.plan("cpu"), torch.Generator().manual_seed(dim)
        sizes = (self.heads, ready.problem.q_len), *2 * ((self.kv_heads, ready.problem.kv_len),)
        made = (torch.randn(self.batch, *size, dim, generator=generator).to(dtype) for size in sizes)
        q, k, v = self.change(tuple(made))
        return q.to(device), k.to(device), v.to(device)


def _text(text: str, block: int | tuple[int, int] = 128, **problem) -> Callable[[str], Plan]:
    return lambda device: plan(ps.lower(ps.parse(text), block=block, **problem), device=device)


def _random_tiles(device: str) -> Plan:
    mask = torch.rand(2, 3, 6, 7, generator=torch.Generator().manual_seed(5)) < 0.4
    mask[1, 2, 3] = False  # rows without keys
    return plan_from_mask(mask.to(device), q_len=700, kv_len=870, block=128, causal=True)


def _rows_per_head(device: str) -> Plan:
    pattern = ps.heads({0: ps.causal, 1: ps.rect(range(0, 128), range(0, 192)) | ps.rect(range(256, 384), range(99))})
    return plan(ps.lower(pattern, q_len=384, heads=2, block=128), device=device)


def _global_rows(device: str) -> Plan:
    pattern = ps.globals(rows=(range(0, 130),)) | ps.window(40, 40)
    return plan(ps.lower(pattern, q_len=4096, block=128), device=device)


def _rising(inputs: Inputs) -> Inputs:
    """Scores that pass the maximum of the first tile by far more than 2^100: a frozen reference overflows."""
    q, k, v = inputs
    k[:, :, -100:] *= 60
    q[:, :, 130:200] *= 8
    return q, k, v


def _far_below_zero(inputs: Inputs) -> Inputs:
    """Every score is about -100000: -inf stands for no key, not a large number."""
    q, k, v = inputs
    return torch.ones_like(q), -torch.ones_like(k), v


def _huge(inputs: Inputs) -> Inputs:
    """Values of 133120, which are exact in bfloat16 and infinite in float16."""
    q, k, v = inputs
    return q, k, torch.full_like(v, 133120.0)


def _poisoned(inputs: Inputs) -> Inputs:
    """Rows past the end and keys that nobody sees hold NaN."""
    made = []
    for x in inputs:
        buffer = torch.full((*x.shape[:2], x.shape[2] + 60, x.shape[3]), torch.nan, dtype=x.dtype)
        buffer[:, :, : x.shape[2]] = x
        made.append(buffer[:, :, : x.shape[2]])
    q, k, v = made
    v[:, :, :20] = torch.nan
    return q, k, v


WINDOW = "causal & window(200, 0)"
CELLS: dict[str, Cell] = {
    "full": Cell(_text("dense", q_len=384, kv_len=640)),
    "one_tile": Cell(_text("dense", q_len=128, kv_len=128)),
    "band": Cell(_text(WINDOW, q_len=900)),
    "bits": Cell(_text("random(90, seed=1)", q_len=400)),
    "bands_and_bits": Cell(_text("causal & (window(200, 0) | sink(40))", q_len=900)),
    "bits_of_256_rows": Cell(_text("causal & (window(200, 0) | sink(40))", (256, 128), q_len=700)),
    "ragged": Cell(_text("causal", q_len=301, kv_len=459)),
    "fewer_keys_than_rows": Cell(_text("causal", q_len=400, kv_len=150)),
    "no_keys": Cell(_text("dense", q_len=200, kv_len=0)),
    "per_head_and_empty": Cell(_rows_per_head),
    "per_batch_from_mask": Cell(_random_tiles, batch=2, heads=3, kv_heads=3),
    "grouped_heads": Cell(_text(WINDOW, q_len=500), batch=2, heads=6),
    "block_of_256_rows": Cell(_text(WINDOW, (256, 64), q_len=700)),
    "split_rows": Cell(_global_rows, heads=1, kv_heads=1),
    "runs_of_64": Cell(_text(WINDOW + " | sink(70)", (128, 64), q_len=700)),
    "runs_of_16": Cell(_text("causal & (window(100, 0) | random(60, seed=2))", (128, 16), q_len=700)),
    "runs_of_8": Cell(_text("causal & (window(100, 0) | sink(9))", (128, 8), q_len=900, kv_len=1100)),
    "rising": Cell(_text("dense", q_len=384, kv_len=640), change=_rising),
    "rising_behind_masked": Cell(_text("causal", q_len=384, kv_len=640), change=_rising),
    "far_below_zero": Cell(_text("causal", q_len=300), scale=100000 / 128, change=_far_below_zero, ordinary=False),
    "huge": Cell(_text("causal", q_len=300), change=_huge, ordinary=False, halves=(torch.bfloat16,)),
    "poisoned": Cell(_text("causal & window(60, 0)", q_len=190, kv_len=300), change=_poisoned, ordinary=False),
    "negative_scale": Cell(_text(WINDOW, q_len=300), scale=-0.2),
}
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3}  # of the largest value, the tests' own; lse is float32


def limit(part: str, dtype: torch.dtype) -> float:
    """The largest error that `errors` may tell of a part."""
    return 1e-4 if part == "lse" else 2.0 if part == "out_to_dense" else TOLERANCE[dtype]


@contextmanager
def claiming(chosen: bool) -> Iterator[None]:
    """Have the Hopper forward claim entries one by one, or not, and its backward add dQ up, however few there are."""
    from attention_core.kernels.hopper import launch, launch_backward

    usual, keys = launch.forward_variant, launch_backward.KEYS_TO_ADD
    launch.forward_variant = lambda *given: replace(usual(*given), claimed_from=0 if chosen else 1 << 30)
    launch_backward.KEYS_TO_ADD = dict.fromkeys(keys, 0)
    try:
        yield
    finally:
        launch.forward_variant, launch_backward.KEYS_TO_ADD = usual, keys


def errors(
    name: str, backend: str, dtype: torch.dtype, dim: int, device: str = "cuda", dropout_p: float = 0.0,
    deterministic: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Largest error of out, lse and the gradients against float64, in units of the largest value (at least 1).

    Infinite where an empty row is not exactly -inf, a zero not exactly 0, or anything NaN. "out_to_dense" is
    the error of out (in the 2-norm) over that of torch's dense attention on the same inputs, at most 2; not with
    dropout, whose pairs are not torch's. The fused gradients there are compared with the exact ones for the out that
    their backward is given, which is rounded to `dtype`: kept pairs weigh more, and so does that rounding.
    """
    cell = CELLS[name]
    inputs, ready = cell.inputs(dtype, dim, device), cell.plan(device)
    found = _run(cell, inputs, ready, backend, dtype, dropout_p, deterministic)
    rounds = dropout_p and backend in ("triton", "hopper")
    exact = _run(cell, inputs, ready, "reference", torch.float64, dropout_p, given=found[0] if rounds else None)
    told = {part: _error(a, b) for part, a, b in zip(NAMES, found, exact, strict=False)}
    if cell.ordinary and not dropout_p:
        mask = reference.dense_mask(ready.runs)
        mask = mask.unflatten(0, (-1, cell.heads)) if len(mask) > cell.heads else mask
        dense = torch.nn.functional.scaled_dot_product_attention(
            *inputs, mask, scale=cell.scale, enable_gqa=cell.heads != cell.kv_heads
        )
        seen = exact[1] > -torch.inf  # torch has NaN or a mean in rows without keys
        budget = (dense.double() - exact[0])[seen].norm()
        told["out_to_dense"] = float((found[0].double() - exact[0])[seen].norm() / budget.clamp(min=1e-12))
    return told


def _run(
    cell: Cell, inputs: Inputs, ready: Plan, backend: str, dtype: torch.dtype, dropout_p: float,
    deterministic: bool = False, given: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs)
    out, lse = block_sparse_attention(
        q, k, v, ready, scale=cell.scale, return_lse=True, backend=backend, dropout_p=dropout_p, seed=2**40 + 5,
        deterministic=deterministic,
    )  # fmt: skip
    if not cell.ordinary:
        return [out.detach(), lse.detach()]
    generator = torch.Generator().manual_seed(9)
    d_out, d_lse = (torch.randn(x.shape, generator=generator).to(x.device, inputs[0].dtype) for x in (out, lse))
    d_out, d_lse = d_out.to(dtype), d_lse.to(lse.dtype)
    if given is not None:  # another out moves the sum of out * d_out, which is what a gradient of lse does
        d_lse = d_lse + ((out - given) * d_out).sum(-1).detach()
    grads = torch.autograd.grad((out, lse), (q, k, v), (d_out, d_lse))
    return [out.detach(), lse.detach(), *grads]


def _error(found: Tensor, exact: Tensor) -> float:
    found, exact = found.double(), exact.double()
    if not exact.numel():
        return 0.0
    empty = exact.isinf()
    if not torch.equal(found.isinf(), empty) or found.isnan().any() or (found[exact == 0] != 0).any():
        return float("inf")
    error = (found - exact).masked_fill(empty, 0).abs().max()
    return float(error / exact.masked_fill(empty, 0).abs().max().clamp(min=1))
