"""What block_sparse_attention refuses, and in which words; autocast; the choice of backend."""

from __future__ import annotations

import math

import pytest
import torch

import pattern_studio as ps
from attention_core import block_sparse_attention, ops, plan

from .inputs import BACKENDS, DEVICE, assert_same, gradients, qkv, run
from .layouts import causal, from_mask

LAYOUT = from_mask(causal(10, 12), (4, 4))


def refuses(text: str, q, k, v, ready=None, **options) -> None:
    ready = plan(LAYOUT) if ready is None else ready
    with pytest.raises(ps.StudioError, match=text):
        block_sparse_attention(q, k, v, ready, **options)


@pytest.mark.parametrize(
    ("q", "k", "v", "text"),
    [
        ((4, 10, 8), (1, 4, 12, 8), (1, 4, 12, 8), r"q must have 4 dimensions .* got 3: \[4, 10, 8\]"),
        ((1, 4, 10, 8), (1, 4, 12, 8), (4, 12, 8), r"v must have 4 dimensions .* got 3"),
        ((2, 4, 10, 8), (1, 4, 12, 8), (2, 4, 12, 8), "one batch size, got 2, 1 and 2"),
        ((1, 4, 10, 8), (1, 2, 12, 8), (1, 4, 12, 8), "equally many heads, got 2 and 4"),
        ((1, 5, 10, 8), (1, 2, 12, 8), (1, 2, 12, 8), "whole multiple of k's, got 5 query and 2 key heads"),
        ((1, 2, 10, 8), (1, 4, 12, 8), (1, 4, 12, 8), "whole multiple of k's, got 2 query and 4 key heads"),
        ((1, 4, 10, 8), (1, 0, 12, 8), (1, 0, 12, 8), "whole multiple of k's, got 4 query and 0 key heads"),
        ((1, 4, 10, 8), (1, 4, 12, 8), (1, 4, 11, 8), "equally long, got 12 and 11 keys"),
        ((1, 4, 10, 8), (1, 4, 12, 6), (1, 4, 12, 8), "one head_dim, got 8 and 6"),
        ((1, 4, 10, 0), (1, 4, 12, 0), (1, 4, 12, 8), "at least 1, got 0 and 8"),
        ((1, 4, 10, 8), (1, 4, 12, 8), (1, 4, 12, 0), "at least 1, got 8 and 0"),
    ],
)
def test_shapes(q, k, v, text):
    refuses(text, torch.zeros(q), torch.zeros(k), torch.zeros(v))


def test_plan_of_other_lengths():
    q, k, v = qkv(1, 1, 1, 10, 10, 4, 4)
    refuses("for q_len 10 and kv_len 12, got q_len 10 and kv_len 10; lower the pattern for these lengths", q, k, v)
    q, k, v = qkv(1, 1, 1, 11, 12, 4, 4)
    refuses("for q_len 10 and kv_len 12, got q_len 11 and kv_len 12", q, k, v)


def test_plan_of_other_heads():
    layout = ps.lower(ps.parse("causal"), q_len=10, kv_len=12, heads=4, block=4)
    q, k, v = qkv(1, 6, 6, 10, 12, 4, 4)
    refuses("the plan is for 4 query heads, q has 6; lower the pattern with heads=6", q, k, v, plan(layout))


def test_not_a_plan():
    q, k, v = qkv(1, 1, 1, 10, 12, 4, 4)
    refuses(r"must be a Plan, got BlockLayout; make one with attention_core\.plan\(layout", q, k, v, LAYOUT)
    refuses("must be a Plan, got str", q, k, v, "causal")


def test_not_tensors():
    q, k, v = qkv(1, 1, 1, 10, 12, 4, 4)
    refuses("k must be a torch tensor, got ndarray", q, k.detach().cpu().numpy(), v)
    refuses("v must be a dense .* got torch.sparse_coo", q, k, v.detach().to_sparse())


def test_devices():
    q, k, v = qkv(1, 1, 1, 10, 12, 4, 4)
    refuses("got k on meta and the plan on cpu; move the plan with", q, k.to("meta"), v)
    refuses("got q on cpu and the plan on meta", q, k, v, plan(LAYOUT, "meta"))


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", True, torch.tensor(1.0)])
def test_scale_must_be_finite(scale):
    refuses("scale must be a finite number or None", *qkv(1, 1, 1, 10, 12, 4, 4), scale=scale)


def test_default_scale():
    inputs = qkv(1, 1, 1, 10, 12, 9, 9)
    for a, b in zip(run(*inputs, plan(LAYOUT)), run(*inputs, plan(LAYOUT), scale=1 / math.sqrt(9)), strict=True):
        assert torch.equal(a, b)


def test_dtypes():
    q, k, v = qkv(1, 1, 1, 10, 12, 4, 4)
    refuses(
        "must have one dtype, got q float64, k float32, v bfloat16; cast them or use torch.autocast",
        q,
        k.float(),
        v.bfloat16(),
    )
    refuses("must be float16, bfloat16, float32 or float64, got q int64", *(x.long() for x in (q, k, v)))


def test_backends():
    inputs = qkv(1, 1, 1, 10, 12, 4, 4)
    refuses("must be one of auto, .*blocked, reference, got 'flash'", *inputs, backend="flash")
    auto, blocked = run(*inputs, plan(LAYOUT), "auto"), run(*inputs, plan(LAYOUT), "blocked")
    assert all(torch.equal(a, b) for a, b in zip(auto, blocked, strict=True))


def test_reference_refuses_what_does_not_fit():
    n = 2**15 + 1
    ready = plan(ps.lower(ps.parse("window(1, 0)"), q_len=n, block=64))
    x = torch.zeros(1, 1, n, 1)
    refuses("serves at most 1,073,741,824; use backend='blocked'", x, x, x, ready, backend="reference")


@pytest.mark.parametrize("backend", BACKENDS)
def test_returns_lse_only_when_asked(backend):
    inputs = qkv(1, 1, 1, 10, 12, 4, 4)
    out, lse = block_sparse_attention(*inputs, plan(LAYOUT), return_lse=True, backend=backend)
    assert torch.equal(block_sparse_attention(*inputs, plan(LAYOUT), backend=backend), out)
    assert lse.shape == (1, 1, 10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_of_results(backend, dtype):
    out, lse, *grads = run(*qkv(1, 2, 1, 10, 12, 4, 4, dtype), plan(LAYOUT), backend)
    assert {out.dtype, *(g.dtype for g in grads)} == {dtype}
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_casts_all_and_returns_each_gradient_in_its_own_dtype(backend):
    """A14: q and k float32, v bfloat16."""
    q, k, v = qkv(1, 2, 2, 10, 12, 8, 8, torch.float32)
    v = v.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, lse = block_sparse_attention(q, k, v, plan(LAYOUT), return_lse=True, backend=backend)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    got = gradients(out, lse, (q, k, v))
    assert [g.dtype for g in got[2:]] == [torch.float32, torch.float32, torch.bfloat16]
    half = tuple(x.detach().bfloat16().requires_grad_() for x in (q, k, v))
    wanted = run(*half, plan(LAYOUT), backend)
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a, b.to(a.dtype))


def test_autocast_does_not_reach_into_the_sums():
    # Scores and sums stay in float32 forward, and backward too when that runs under autocast.
    inputs = qkv(1, 2, 2, 10, 12, 8, 8, torch.bfloat16)
    wanted = run(*inputs, plan(LAYOUT))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(*inputs, plan(LAYOUT))
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_autocast_leaves_float64_alone():
    inputs = qkv(1, 2, 2, 10, 12, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(*inputs, plan(LAYOUT))
    assert_same(got, run(*inputs, plan(LAYOUT)), 0)


@pytest.mark.parametrize("backend", ["blocked", "triton"])
def test_a_kind_of_call_that_was_served_refuses_what_it_did(backend):
    """The checks of a kind are made once; whatever is wrong is still told in the same words."""
    device = DEVICE if backend == "triton" else "cpu"
    ready = plan(ps.lower(ps.parse("causal"), q_len=10, kv_len=12, block=16), device=device)
    q, k, v = qkv(1, 2, 2, 10, 12, 8, 8, torch.float32, device)
    wanted = run(q, k, v, ready, backend, scale=1.0)
    for a, b in zip(run(q, k, v, ready, backend, scale=1.0), wanted, strict=True):
        assert torch.equal(a, b)
    right = {"scale": 1.0, "dropout_p": 0.0, "backend": backend}
    refuses("scale must be a finite number .* got True", q, k, v, ready, **right | {"scale": True})
    refuses("scale must be a finite number .* got nan", q, k, v, ready, **right | {"scale": math.nan})
    refuses("dropout_p must be a number .* got False", q, k, v, ready, **right | {"dropout_p": False})
    refuses("dropout_p must be a number .* got nan", q, k, v, ready, **right | {"dropout_p": math.nan})
    refuses("dropout_p must be a number .* got 1.5", q, k, v, ready, **right | {"dropout_p": 1.5})
    refuses("seed must be None, .* got -1", q, k, v, ready, **right | {"seed": -1})
    refuses("backend must be one of auto, .* got None", q, k, v, ready, **right | {"backend": None})
    refuses("one dtype, got q float32, k float64, v float32", q, k.double(), v, ready, **right)
    refuses(f"got v on meta and the plan on {device}", q, k, v.to("meta"), ready, **right)
    refuses("v must be a dense .* got torch.sparse_coo", q, k, v.detach().to_sparse(), ready, **right)
    refuses("k must be a torch tensor, got ndarray", q, k.detach().cpu().numpy(), v, ready, **right)
    refuses("the plan is for q_len 10 and kv_len 12, got q_len 9", q[:, :, :9], k, v, ready, **right)
    refuses("k and v must be equally long, got 12 and 11 keys", q, k, v[:, :, :11], ready, **right)


def test_autocast_is_part_of_a_kind():
    q, k, v = qkv(1, 2, 2, 10, 12, 8, 8, torch.float32)
    ready = plan(LAYOUT)
    for _ in range(2):
        assert block_sparse_attention(q, k, v, ready).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert block_sparse_attention(q, k, v, ready).dtype == torch.bfloat16


def test_a_plan_remembers_a_bounded_number_of_kinds():
    ready = plan(LAYOUT)
    q, k, v = qkv(1, 1, 1, 10, 12, 4, 4)
    for n in range(ops.KINDS + 3):
        block_sparse_attention(q, k, v, ready, scale=1.0 + n)
    assert 0 < len(vars(ready)["_known"]) <= ops.KINDS
