"""Error budgets: fp16 and bf16 at most twice the error of dense SDPA in the same dtype, fp32 within 1e-5."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels import reference

from .inputs import BACKENDS, DEVICES, gradients, normal, qkv, run

PATTERNS = ["causal & (window(40, 0) | sink(4))", "causal", "dense", "causal & strided(5) | window(1, 0)"]
NAMES = ("out", "lse", "dq", "dk", "dv")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("dim", [16, 64])
def test_half_precision(text, dtype, backend, dim, device):
    ready = plan(ps.lower(ps.parse(text), q_len=150, block=(32, 8)), device)
    mask = reference.dense_mask(ready.runs)
    inputs = qkv(2, 4, 2, 150, 150, dim, dim, dtype, device)
    exact = tuple(x.detach().double().requires_grad_() for x in inputs)
    d_out = normal(2, 4, 150, dim, seed=10, dtype=dtype, device=device)

    def out_and_gradients(attend, tensors):
        out = attend(*tensors)
        return out.detach(), *torch.autograd.grad(out, tensors, d_out.to(out.dtype))

    def sdpa(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    wanted = out_and_gradients(lambda *x: reference.attention(*x, mask, 1 / math.sqrt(dim))[0], exact)
    dense = out_and_gradients(sdpa, inputs)
    got = out_and_gradients(lambda *x: block_sparse_attention(*x, ready, backend=backend), inputs)
    for name, a, b, w in zip(("out", "dq", "dk", "dv"), got, dense, wanted, strict=True):
        for norm in (float("inf"), 2):
            error, budget = ((x.double() - w).flatten().norm(norm) for x in (a, b))
            assert error <= 2 * budget + 1e-6, f"{name}: error {error:.2e}, dense SDPA {budget:.2e}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("dim", [16, 64])
def test_single_precision(text, backend, dim, device):
    ready = plan(ps.lower(ps.parse(text), q_len=150, block=(32, 8)), device)
    inputs = qkv(2, 4, 2, 150, 150, dim, dim, torch.float32, device)
    wanted = run(*(x.detach().double().requires_grad_() for x in inputs), ready, "reference")
    for name, a, w in zip(NAMES, run(*inputs, ready, backend), wanted, strict=True):
        torch.testing.assert_close(a.double(), w, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lse_of_half_precision_is_kept_in_float32(backend, dtype, device):
    ready = plan(ps.lower(ps.parse("causal"), q_len=100, block=16), device)
    inputs = qkv(1, 2, 2, 100, 100, 32, 32, dtype, device)
    _, lse = block_sparse_attention(*inputs, ready, return_lse=True, backend=backend)
    exact = (x.detach().double() for x in inputs)
    _, wanted = block_sparse_attention(*exact, ready, return_lse=True, backend="reference")
    torch.testing.assert_close(lse.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("level", [-1e5, 1e5])
@pytest.mark.parametrize("block", [(16, 16), (16, 1)])
def test_rows_whose_scores_are_all_far_from_zero(backend, level, block):
    # -inf, not a large finite number, stands for "no key yet"; and exp never sees the level itself.
    n = 40
    ready = plan(ps.lower(ps.parse("causal & window(9, 0)"), q_len=n, block=block))
    q = torch.ones(1, 1, n, 1, requires_grad=True)
    k = torch.full((1, 1, n, 1), level, requires_grad=True)
    v = normal(1, 1, n, 3, seed=1, dtype=torch.float32).requires_grad_()
    out, lse, *grads = run(q, k, v, ready, backend, scale=1.0)
    mask = reference.dense_mask(ready.runs)[0].double()
    wanted = mask @ v[0, 0].double() / mask.sum(-1, keepdim=True)
    torch.testing.assert_close(out[0, 0].double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse[0, 0].double(), level + mask.sum(-1).log(), rtol=1e-7, atol=1e-2)
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_huge_values_in_bfloat16(backend):
    ready = plan(ps.lower(ps.parse("causal"), q_len=1, block=16))
    q, k, v = (torch.full((1, 2, 1, 64), 133120.0, dtype=torch.bfloat16) for _ in range(3))
    out, lse = block_sparse_attention(q, k, v, ready, return_lse=True, backend=backend)
    assert torch.equal(out, v)
    assert np.isclose(float(lse[0, 0, 0]), 133120.0**2 * 8)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sharp_rows_against_float64(backend):
    # Scores spread over +-300: all but a few probabilities underflow, none may overflow.
    ready = plan(ps.lower(ps.parse("causal"), q_len=80, block=(16, 4)))
    inputs = qkv(1, 2, 2, 80, 80, 16, 16, torch.float32)
    out, lse = block_sparse_attention(*inputs, ready, scale=25.0, return_lse=True, backend=backend)
    got = gradients(out, lse, inputs)
    wanted = run(*(x.detach().double().requires_grad_() for x in inputs), ready, "reference", scale=25.0)
    for name, a, w in zip(NAMES, got, wanted, strict=True):
        error = (a.double() - w).norm() / w.norm()
        assert error < 1e-4, f"{name}: {error:.1e}"
