"""Faults reported in public on other software, as tests of both backends; A2 ... A13 is the project's list of cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pattern_studio as ps
from attention_core import block_sparse_attention, plan

from . import naive
from .inputs import BACKENDS, DEVICES, assert_same, gradients, normal, qkv, run, upstream
from .layouts import causal, from_mask


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("q_len", "kv_len", "window", "rows"),
    [
        (2, 5, None, [range(4), range(5)]),
        (5, 2, None, [[], [], [], [0], [0, 1]]),
        (3, 10, 4, [range(4, 8), range(5, 9), range(6, 10)]),
        (1, 10, 4, [range(6, 10)]),
    ],
)
def test_a2_bottom_right(backend, q_len, kv_len, window, rows):
    text = "causal" if window is None else f"causal & window({window - 1}, 0)"
    ready = plan(ps.lower(ps.parse(text), q_len=q_len, kv_len=kv_len, block=4))
    q, k, _ = qkv(1, 1, 1, q_len, kv_len, 4, kv_len)
    # With q = 0 and v = identity the output row is 1/count at the row's keys.
    out = block_sparse_attention(0 * q, k, torch.eye(kv_len).double()[None, None], ready, backend=backend)
    wanted = torch.zeros(q_len, kv_len, dtype=torch.float64)
    for i, keys in enumerate(rows):
        wanted[i, list(keys)] = 1 / max(len(keys), 1)
    torch.testing.assert_close(out[0, 0], wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", ["dense", "causal"])
def test_a5_ragged_last_block(backend, text, device):
    layout = ps.lower(ps.parse(text), q_len=130, block=64)
    ready = plan(layout, device)
    buffers = torch.full((3, 1, 1, 256, 64), float("nan"), device=device)
    buffers[0, :, :, :130], buffers[1, :, :, :130] = 1, -1
    buffers[2, :, :, :130] = normal(130, 64, seed=1, dtype=torch.float32, device=device)
    q, k, v = (b[:, :, :130].requires_grad_() for b in buffers)
    out, lse, *grads = run(q, k, v, ready, backend, scale=1 / 8)
    counts = torch.full((130,), 130) if text == "dense" else torch.arange(1, 131)
    values = v.detach()[0, 0].double()
    summed = values.sum(0).expand(130, -1) if text == "dense" else values.cumsum(0)
    wanted = (summed / counts.to(device)[:, None]).float()
    torch.testing.assert_close(out[0, 0], wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(lse[0, 0].cpu(), counts.log() - 8, rtol=1e-5, atol=1e-5)
    exact = run(*(x.detach().double().requires_grad_() for x in (q, k, v)), ready, "reference", scale=1 / 8)
    assert_same(tuple(x.double() for x in (out, lse, *grads)), exact, 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [(4, 4), (16, 16), (8, 1)])
def test_a8_documents(backend, block):
    lengths = [3, 5, 1, 0, 7]
    ends = np.cumsum(lengths)
    document = np.repeat(np.arange(5), lengths)
    mask = causal(16, 16) & (document[:, None] == document)
    assert mask.sum() == 50
    ready = plan(from_mask(mask, block))
    q, k, v = qkv(1, 2, 2, 16, 16, 8, 8)
    out, lse = block_sparse_attention(q, k, v, ready, return_lse=True, backend=backend)
    d_out, d_lse = upstream(out, lse)
    packed = gradients(out, lse, (q, k, v))
    for begin, end in zip([0, *ends], ends, strict=False):
        if begin == end:
            continue
        part = np.s_[:, :, begin:end]
        alone = tuple(x[part].detach().requires_grad_() for x in (q, k, v))
        own = plan(from_mask(causal(end - begin, end - begin), block))
        results = block_sparse_attention(*alone, own, return_lse=True, backend=backend)
        wanted = gradients(*results, alone, (d_out[part], d_lse[part]))
        assert_same(tuple(x[part] for x in packed), wanted, 1e-12)
    with torch.no_grad():
        k[:, :, :3] += 1e3
        v[:, :, :3] += 1e3
    changed = block_sparse_attention(q, k, v, ready, backend=backend)
    assert torch.equal(changed[:, :, 3:], out[:, :, 3:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [(64, 64), (64, 1)])
def test_a9_query_block_without_keys_and_key_block_without_queries(backend, block):
    mask = np.ones((2, 256, 256), bool)
    mask[1, 128:192] = mask[1, :, 192:] = False
    ready = plan(from_mask(mask, block))
    inputs = qkv(1, 2, 2, 256, 256, 64, 64)
    torch.use_deterministic_algorithms(True)  # also fills every torch.empty with NaN
    try:
        got = run(*inputs, ready, backend)
    finally:
        torch.use_deterministic_algorithms(False)
    out, lse, dq, dk, dv = got
    assert (out[0, 1, 128:192] == 0).all()
    assert (lse[0, 1, 128:192] == -torch.inf).all()
    assert (dq[0, 1, 128:192] == 0).all()
    assert (dk[0, 1, 192:] == 0).all()
    assert (dv[0, 1, 192:] == 0).all()
    assert_same(got, gradients(*naive.attention(*inputs, mask), inputs), 1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a10_layout_of_another_length(backend):
    ready = plan(ps.lower(ps.parse("causal"), q_len=1024, block=64))
    for q_len, kv_len in ((500, 1024), (1024, 500), (2048, 2048)):
        q, k = torch.zeros(1, 1, q_len, 8), torch.zeros(1, 1, kv_len, 8)
        with pytest.raises(ValueError, match=f"q_len 1024 and kv_len 1024, got q_len {q_len} and kv_len {kv_len}"):
            block_sparse_attention(q, k, k, ready, backend=backend)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a11_lse_and_its_gradient(backend, device):
    mask = causal(128, 128, 31)
    mask[:, 50] = False
    ready = plan(from_mask(mask, (32, 16)), device)
    q, k, v = qkv(1, 1, 1, 128, 128, 64, 64, torch.float32, device)
    allowed = torch.from_numpy(mask[0]).to(device)
    scores = (q[0, 0].detach().double() @ k[0, 0].detach().double().T / 8).masked_fill(~allowed, -torch.inf)
    _, lse = block_sparse_attention(q, k, v, ready, return_lse=True, backend=backend)
    torch.testing.assert_close(lse[0, 0].double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)
    assert lse[0, 0, 50] == -torch.inf

    g = normal(128, seed=3, dtype=torch.float32, device=device)
    dq, dk, dv = torch.autograd.grad(lse, (q, k, v), g[None, None], materialize_grads=True)
    p = (scores - scores.logsumexp(-1, keepdim=True)).exp().masked_fill(~allowed, 0)
    weighted = g.double()[:, None] * p / 8
    torch.testing.assert_close(dq[0, 0].double(), weighted @ k[0, 0].double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dk[0, 0].double(), weighted.T @ q[0, 0].double(), rtol=1e-5, atol=1e-5)
    assert (dv == 0).all()
    assert (dq[0, 0, 50] == 0).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value_dim", [32, 128])
def test_a12_three_query_heads_a_key_head(backend, value_dim, device):
    ready = plan(ps.lower(ps.parse("causal & (window(40, 0) | sink(3))"), q_len=192, block=32), device)
    q, k, v = qkv(1, 6, 2, 192, 192, 64, value_dim, device=device)
    got = run(q, k, v, ready, backend)
    copies = tuple(x.detach().repeat_interleave(3, 1).requires_grad_() for x in (k, v))
    out, lse, dq, dk, dv = run(q, *copies, ready, "reference")
    wanted = out, lse, dq, dk.unflatten(1, (2, 3)).sum(2), dv.unflatten(1, (2, 3)).sum(2)
    assert_same(got, wanted, 1e-11)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("batch", "heads"), [(10923, 6), (1, 65536)])
def test_a13_more_than_65535_batch_times_heads(batch, heads, device):
    ready = plan(ps.lower(ps.parse("causal"), q_len=16, block=16), device)
    inputs = qkv(batch, heads, heads, 16, 16, 16, 16, torch.float16, device)
    dim = 0 if batch > 1 else 1
    d = inputs[1].detach(), inputs[2].detach()[..., 0]
    results = block_sparse_attention(*inputs, ready, return_lse=True, backend="blocked")
    whole = gradients(*results, inputs, (d[0], d[1].float()))
    halves = []
    for n in range(2):
        q, k, v, *part = (x.detach().chunk(2, dim)[n] for x in (*inputs, *d))
        some = tuple(x.requires_grad_() for x in (q, k, v))
        results = block_sparse_attention(*some, ready, return_lse=True, backend="blocked")
        halves.append(gradients(*results, some, (part[0], part[1].float())))
    for a, *b in zip(whole, *halves, strict=True):
        assert torch.equal(a, torch.cat(b, dim))
