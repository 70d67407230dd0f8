"""Faults reported in public on other software, as tests of the fused kernels; test_triton.py has A5, A9 and A12."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import pattern_studio as ps
from attention_core import block_sparse_attention, plan

from .inputs import gradients, qkv
from .layouts import causal, from_mask

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_a8_documents():
    document = np.repeat(np.arange(5), [3, 5, 1, 0, 7])
    mask = causal(16, 16) & (document[:, None] == document)
    assert mask.sum() == 50
    ready = plan(from_mask(mask, (16, 16)), DEVICE)
    q, k, v = qkv(1, 1, 1, 16, 16, 16, 16, torch.float32, DEVICE)
    before = block_sparse_attention(q, k, v, ready, backend="triton")
    with torch.no_grad():
        k[:, :, :3] += 1e3
        v[:, :, :3] += 1e3
    after = block_sparse_attention(q, k, v, ready, backend="triton")
    assert torch.equal(after[:, :, 3:], before[:, :, 3:])
    for begin, end in ((0, 3), (3, 8), (8, 9), (9, 16)):
        own = plan(from_mask(causal(end - begin, end - begin), (16, 16)), DEVICE)
        alone = block_sparse_attention(*(x[:, :, begin:end] for x in (q, k, v)), own, backend="triton")
        torch.testing.assert_close(after[:, :, begin:end], alone, atol=1e-4, rtol=1e-5)


def test_a10_layout_of_another_length():
    ready = plan(ps.lower(ps.causal, q_len=1024, block=64), DEVICE)
    q, k = torch.zeros(1, 1, 500, 16, device=DEVICE), torch.zeros(1, 1, 1024, 16, device=DEVICE)
    with pytest.raises(ValueError, match="q_len 1024 and kv_len 1024, got q_len 500 and kv_len 1024"):
        block_sparse_attention(q, k, k, ready, backend="triton")


def test_a11_gradient_of_lse_alone():
    mask = causal(32, 32, 7)
    mask[:, 20] = False
    ready = plan(from_mask(mask, (16, 16)), DEVICE)
    q, k, v = qkv(1, 1, 1, 32, 32, 16, 16, torch.float32, DEVICE)
    _, lse = block_sparse_attention(q, k, v, ready, return_lse=True, backend="triton")
    exact = tuple(x.detach().double().requires_grad_() for x in (q, k, v))
    _, wanted = block_sparse_attention(*exact, ready, return_lse=True, backend="reference")
    torch.testing.assert_close(lse.double(), wanted, atol=1e-5, rtol=1e-5)
    upstream = torch.linspace(-1, 1, 32, device=DEVICE)[None, None]
    got = torch.autograd.grad(lse, (q, k, v), upstream)
    for a, b in zip(got[:2], torch.autograd.grad(wanted, exact[:2], upstream.double()), strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)
    assert (got[2] == 0).all()
    assert (got[0][0, 0, 20] == 0).all()


def test_a14_autocast_returns_each_gradient_in_its_own_dtype():
    ready = plan(ps.lower(ps.causal, q_len=16, block=16), DEVICE)
    q, k, v = qkv(1, 1, 1, 16, 16, 16, 16, torch.float32, DEVICE)
    v = v.detach().half().requires_grad_()
    with torch.autocast(DEVICE, dtype=torch.float16):
        got = gradients(*block_sparse_attention(q, k, v, ready, return_lse=True, backend="triton"), (q, k, v))
    assert [x.dtype for x in got] == [torch.float16, torch.float32, torch.float32, torch.float32, torch.float16]
    half = tuple(x.detach().half().requires_grad_() for x in (q, k, v))
    wanted = gradients(*block_sparse_attention(*half, ready, return_lse=True, backend="triton"), half)
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a, b.to(a.dtype))
    with pytest.raises(ps.StudioError, match="must have one dtype, got q float32, k float32, v float16"):
        block_sparse_attention(q, k, v, ready, backend="triton")


def test_the_layout_is_obeyed():
    """A layout silently ignored: changing a value that no row selects must not change the output."""
    ready = plan(ps.lower(ps.window(3, 0), q_len=16, kv_len=48, block=16), DEVICE)
    q, k, v = (x.detach() for x in qkv(1, 1, 1, 16, 48, 16, 16, torch.float32, DEVICE))
    before = block_sparse_attention(q, k, v, ready, backend="triton")
    v[:, :, :29] += 7  # row 0 stands at 32 and sees 29 to 32
    assert torch.equal(block_sparse_attention(q, k, v, ready, backend="triton"), before)
    v[:, :, 29] += 7
    assert not torch.equal(block_sparse_attention(q, k, v, ready, backend="triton"), before)


@pytest.mark.parametrize(("batch", "q_len", "kv_len"), [(0, 16, 16), (1, 0, 16), (1, 16, 0)])
def test_nothing_to_do(batch, q_len, kv_len):
    ready = plan(from_mask(np.ones((1, q_len, kv_len), bool), (16, 16)), DEVICE)
    inputs = qkv(batch, 2, 1, q_len, kv_len, 16, 16, torch.float32, DEVICE)
    out, lse, *grads = gradients(*block_sparse_attention(*inputs, ready, return_lse=True, backend="triton"), inputs)
    assert out.shape == (batch, 2, q_len, 16)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    assert all((g == 0).all() and g.shape == x.shape for g, x in zip(grads, inputs, strict=True))


def test_eight_threads_on_a_cold_plan():
    layout = ps.lower(ps.causal & ps.window(5, 0), q_len=16, block=16)
    q, k, v = (x.detach() for x in qkv(1, 1, 1, 16, 16, 16, 16, torch.float32, DEVICE))
    wanted = block_sparse_attention(q, k, v, plan(layout, DEVICE), backend="blocked")
    cold, found = plan(layout, DEVICE), []
    start = threading.Barrier(8)

    def lists() -> None:
        start.wait()
        found.append(cold.by_query.tensors())

    threads = [threading.Thread(target=lists) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(torch.equal(a, b) for other in found for a, b in zip(other, found[0], strict=True))
    got = block_sparse_attention(q, k, v, cold, backend="triton")
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
