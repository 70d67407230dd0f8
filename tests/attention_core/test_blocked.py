"""blocked against the reference in float64, and what it promises beyond equal numbers."""

from __future__ import annotations

import threading
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels import schedule

from . import naive
from .inputs import DEVICES, assert_same, gradients, normal, qkv, run
from .layouts import causal, from_mask

BLOCKS = [(8, 8), (64, 8), (16, 1), (1, 16), (12, 12), (5, 7), (4, 64), (512, 512), (1, 1)]


@st.composite
def masks(draw) -> tuple[np.ndarray, int]:
    """A mask [heads, q_len, kv_len] and an offset: noise, bands, whole blocks, empty rows, repeated heads."""
    q_len, kv_len, heads = draw(st.integers(0, 33)), draw(st.integers(0, 33)), draw(st.sampled_from([1, 2, 3, 6]))
    offset = draw(st.integers(-5, 5) | st.just(kv_len - q_len))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    mask = rng.random((heads, q_len, kv_len)) < draw(st.sampled_from([0, 0.02, 0.3, 0.9, 1]))
    distance = np.arange(kv_len) - (np.arange(q_len)[:, None] + offset)
    for h in range(heads):
        shape = draw(st.sampled_from(["noise", "band", "cut", "columns", "as the last"]))
        if shape == "band":
            mask[h] = (distance <= draw(st.integers(-3, 9))) & (distance >= -draw(st.integers(0, 30)))
        elif shape == "cut":
            mask[h] &= distance <= 0
        elif shape == "columns":
            mask[h] = mask[h, :1]
        elif shape == "as the last":
            mask[h] = mask[h - 1]
    mask[:, rng.random(q_len) < draw(st.sampled_from([0, 0.2]))] = False
    return mask, offset


@settings(max_examples=100, deadline=None)
@given(
    masks(),
    st.sampled_from(BLOCKS),
    st.integers(1, 2),
    st.sampled_from([1, 2, 3]),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([2**22, 20_000, 500]),
)
def test_equals_reference(mask_and_offset, block, batch, ratio, dims, chunk_elements):
    mask, offset = mask_and_offset
    heads = len(mask) if len(mask) % ratio == 0 else ratio
    mask = mask[:1] if heads != len(mask) else mask
    layout = from_mask(mask, block, offset, bands=((-(2**40), 0), (-7, 2), (-4, 2**40)))
    inputs = qkv(batch, heads, heads // ratio, mask.shape[1], mask.shape[2], *dims)
    ready = plan(layout)
    with patch.object(schedule, "chunk_elements", lambda device: chunk_elements):
        got = run(*inputs, ready, "blocked")
    assert_same(got, run(*inputs, ready, "reference"), 1e-11)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunk_elements", [2**22, 5000])
@pytest.mark.parametrize("text", ["causal & (window(9, 0) | sink(2))", "dense", "strided(7)", "empty", "window(3, 3)"])
def test_equals_naive_on_lowered_patterns(text, chunk_elements, device):
    mask = ps.dense_mask(ps.parse(text), ps.Problem(45, 50))
    inputs = qkv(1, 2, 1, 45, 50, 4, 6, device=device)
    wanted = gradients(*naive.attention(*inputs, mask), inputs)
    for block in [(16, 16), (32, 4), (64, 1)]:
        ready = plan(ps.lower(ps.parse(text), q_len=45, kv_len=50, block=block), device)
        with patch.object(schedule, "chunk_elements", lambda device: chunk_elements):
            assert_same(run(*inputs, ready, "blocked"), wanted, 1e-11)


@pytest.mark.parametrize("dims", [(31, 31), (96, 96), (192, 128), (256, 256), (1, 3)])
def test_head_dims(dims):
    ready = plan(from_mask(causal(50, 50, 20), (16, 16)))
    inputs = qkv(1, 2, 2, 50, 50, *dims)
    assert_same(run(*inputs, ready, "blocked"), run(*inputs, ready, "reference"), 1e-11)


@pytest.mark.parametrize(("batch", "q_len", "kv_len"), [(0, 8, 8), (2, 0, 8), (2, 8, 0), (0, 0, 0)])
@pytest.mark.parametrize("backend", ["blocked", "reference"])
def test_nothing_to_do(batch, q_len, kv_len, backend):
    mask = np.ones((1, q_len, kv_len), bool)
    inputs = qkv(batch, 4, 2, q_len, kv_len, 3, 5)
    out, lse, dq, dk, dv = run(*inputs, plan(from_mask(mask, (4, 4))), backend)
    assert out.shape == (batch, 4, q_len, 5)
    assert lse.shape == (batch, 4, q_len)
    assert (lse == -torch.inf).all()
    for x, like in zip((out, dq, dk, dv), (out, *inputs), strict=True):
        torch.testing.assert_close(x, torch.zeros_like(like), rtol=0, atol=0)


def test_one_layout_serves_all_heads():
    mask = np.random.default_rng(5).random((1, 30, 30)) < 0.4
    inputs = qkv(2, 6, 3, 30, 30, 8, 8)
    one, six = plan(from_mask(mask, (8, 4))), plan(from_mask(np.repeat(mask, 6, 0), (8, 4)))
    for a, b in zip(run(*inputs, one), run(*inputs, six), strict=True):
        assert torch.equal(a, b)


def test_heads_of_one_key_head_may_differ():
    # 6 query heads on 2 key heads; the first three share a layout, the others do not.
    mask = np.random.default_rng(6).random((6, 40, 40)) < 0.3
    mask[1] = mask[2] = mask[0]
    inputs = qkv(2, 6, 2, 40, 40, 8, 4)
    ready = plan(from_mask(mask, (8, 8)))
    assert_same(run(*inputs, ready, "blocked"), run(*inputs, ready, "reference"), 1e-11)


@pytest.mark.parametrize("device", DEVICES)
def test_many_queries_share_one_key_block(device):
    mask = np.zeros((1, 700, 64), bool)
    mask[:, :, 16:32] = True
    inputs = qkv(1, 4, 2, 700, 64, 16, 16, device=device)
    ready = plan(from_mask(mask, (64, 16)), device)
    assert_same(run(*inputs, ready, "blocked"), run(*inputs, ready, "reference"), 1e-11)


@pytest.mark.parametrize("backend", ["blocked", "reference"])
def test_any_strides(backend):
    ready = plan(from_mask(causal(24, 24, 9), (8, 8)))
    wanted = run(*qkv(2, 4, 4, 24, 24, 8, 8), ready, backend)
    q, k, v = (x.detach() for x in qkv(2, 4, 4, 24, 24, 8, 8))
    q = q.transpose(1, 2).contiguous().transpose(1, 2)  # [batch, length, heads, dim] in memory
    k = torch.stack([k, k], -1)[..., 0]  # every second number
    v = torch.cat([v, v], 2)[:, :, :24].mT.contiguous().mT  # a slice, stored transposed
    inputs = tuple(x.requires_grad_() for x in (q, k, v))
    out, lse = block_sparse_attention(*inputs, ready, return_lse=True, backend=backend)
    d_out = normal(*out.shape, seed=10).mT.contiguous().mT
    d_lse = torch.stack([normal(*lse.shape, seed=11)] * 2, -1)[..., 0]
    got = torch.autograd.grad((out, lse), inputs, (d_out, d_lse))
    assert_same((out.detach(), lse.detach(), *got), wanted, 1e-12)
    expanded = torch.autograd.grad(block_sparse_attention(*inputs, ready, backend=backend).sum(), inputs)
    ones = torch.autograd.grad(block_sparse_attention(*inputs, ready, backend=backend), inputs, torch.ones_like(out))
    assert all(torch.equal(a, b) for a, b in zip(expanded, ones, strict=True))


@pytest.mark.parametrize("backend", ["blocked", "reference"])
def test_gradient_of_one_output_only(backend):
    ready = plan(from_mask(causal(20, 20), (8, 8)))
    inputs = qkv(1, 2, 1, 20, 20, 4, 4)
    zero_lse, zero_out = torch.zeros(1, 2, 20, dtype=torch.float64), torch.zeros(1, 2, 20, 4, dtype=torch.float64)
    for chosen, zero in ((0, zero_lse), (1, zero_out)):
        outputs = block_sparse_attention(*inputs, ready, return_lse=True, backend=backend)
        upstream = normal(*outputs[chosen].shape, seed=12)
        # v takes no part in lse: torch then has no gradient for it, which means zero.
        alone = torch.autograd.grad(outputs[chosen], inputs, upstream, materialize_grads=True, retain_graph=True)
        both = torch.autograd.grad(outputs, inputs, (upstream, zero) if chosen == 0 else (zero, upstream))
        for a, b in zip(alone, both, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_second_derivative_raises():
    inputs = qkv(1, 1, 1, 8, 8, 4, 4)
    out = block_sparse_attention(*inputs, plan(from_mask(causal(8, 8), (4, 4))), backend="blocked")
    (dq,) = torch.autograd.grad((out**2).sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_eight_threads_on_a_cold_plan():
    layout = from_mask(np.random.default_rng(8).random((2, 60, 60)) < 0.3, (16, 4))
    wanted, ready = run(*qkv(1, 2, 2, 60, 60, 8, 8), plan(layout)), plan(layout)
    found: list = [None] * 8
    gate = threading.Barrier(8)

    def work(n: int) -> None:
        gate.wait()
        found[n] = run(*qkv(1, 2, 2, 60, 60, 8, 8), ready)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for got in found:
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_repeats_bit_for_bit():
    mask = np.random.default_rng(9).random((4, 64, 64)) < 0.5
    ready = plan(from_mask(mask, (16, 8)))
    first, second = (run(*qkv(2, 4, 2, 64, 64, 16, 16, torch.float32), ready) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
