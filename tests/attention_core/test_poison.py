"""What is not selected is not there: NaN and infinity where nobody may look, or beyond the end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention_core import block_sparse_attention, plan

from .inputs import BACKENDS, DEVICES, assert_same, gradients, qkv, run
from .layouts import causal, from_mask


def poisoned(x: torch.Tensor, keys: np.ndarray | slice, value: float) -> torch.Tensor:
    x = x.detach().clone()
    x[:, :, keys] = value
    return x.requires_grad_()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("block", [(16, 16), (8, 1), (16, 4)])
def test_unselected_keys_change_no_bit(backend, value, block, device):
    # Keys 5, 6 and 40 stand inside PARTIAL tiles of other keys, 20-35 partly in EMPTY ones.
    mask = np.random.default_rng(1).random((1, 48, 48)) < 0.5
    unseen = np.r_[5, 6, 40, 20:36]
    mask[:, :, unseen] = False
    ready = plan(from_mask(mask, block), device)
    q, k, v = qkv(2, 2, 1, 48, 48, 8, 8, device=device)
    wanted = run(q, k, v, ready, backend)
    got = run(q, poisoned(k, unseen, value), poisoned(v, unseen, value), ready, backend)
    assert_same(got, wanted, 1e-13)
    # On a GPU dk and dv are added up in whatever order the rows come.
    for a, b in zip(got[: 5 if device == "cpu" else 3], wanted, strict=False):
        assert torch.equal(a, b)
    assert (got[3][:, :, unseen] == 0).all()
    assert (got[4][:, :, unseen] == 0).all()


def test_a_block_is_reached_only_by_keys_it_selects():
    # Query block 0 sees key block 0 and block 1 sees all; NaN in key block 1 stays with query block 1.
    mask = np.ones((1, 32, 32), bool)
    mask[:, :16, 16:] = False
    ready = plan(from_mask(mask, (16, 16)))
    q, k, v = qkv(1, 1, 1, 32, 32, 4, 4)
    wanted = block_sparse_attention(q, k, v, ready, backend="blocked")
    bad = slice(16, 32)
    out, lse = block_sparse_attention(
        q, poisoned(k, bad, float("nan")), poisoned(v, bad, float("nan")), ready, return_lse=True, backend="blocked"
    )
    assert torch.equal(out[:, :, :16], wanted[:, :, :16])
    assert out[:, :, 16:].isnan().all()
    assert lse[:, :, 16:].isnan().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_an_empty_row_go_nowhere(backend):
    # Rows 3 and 20 are empty, in active blocks; what comes from upstream for them is NaN.
    mask = causal(32, 32)
    mask[:, [3, 20]] = False
    ready = plan(from_mask(mask, (16, 8)))
    inputs = qkv(1, 2, 2, 32, 32, 4, 4)
    out, lse = block_sparse_attention(*inputs, ready, return_lse=True, backend=backend)
    assert (out[:, :, [3, 20]] == 0).all()
    assert (lse[:, :, [3, 20]] == -torch.inf).all()
    d_out, d_lse = torch.ones_like(out), torch.ones_like(lse)
    clean = torch.autograd.grad((out, lse), inputs, (d_out, d_lse), retain_graph=True)
    d_out[:, :, [3, 20]] = d_lse[:, :, [3, 20]] = float("nan")
    got = torch.autograd.grad((out, lse), inputs, (d_out, d_lse))
    assert all(torch.equal(a, b) for a, b in zip(got, clean, strict=True))
    assert (got[0][:, :, [3, 20]] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_row_among_nan_keys_stays_empty(backend):
    mask = causal(32, 32)
    mask[:, 20] = False
    q, k, v = qkv(1, 2, 2, 32, 32, 4, 4)
    bad = slice(16, 20)  # seen by rows of the empty row's own block
    inputs = q, poisoned(k, bad, float("nan")), poisoned(v, bad, float("nan"))
    out, lse, dq, _, _ = run(*inputs, plan(from_mask(mask, (16, 16))), backend)
    assert (out[:, :, 20] == 0).all()
    assert (lse[:, :, 20] == -torch.inf).all()
    assert (dq[:, :, 20] == 0).all()


def test_a_block_reaches_only_the_gradients_of_keys_it_selects():
    # Keys 5 and 6 stand in a PARTIAL tile of query block 0 that none of its rows selects; block 1 sees them.
    mask = causal(32, 32)
    mask[:, :16, 5:7] = False
    inputs = qkv(1, 1, 1, 32, 32, 4, 4)
    out, lse = block_sparse_attention(*inputs, plan(from_mask(mask, (16, 16))), return_lse=True, backend="blocked")
    d_out, d_lse = torch.ones_like(out), torch.ones_like(lse)
    clean = torch.autograd.grad((out, lse), inputs, (d_out, d_lse), retain_graph=True)
    d_out[:, :, 15] = d_lse[:, :, 15] = float("nan")
    _, dk, dv = torch.autograd.grad((out, lse), inputs, (d_out, d_lse))
    unreached = np.r_[5, 6, 16:32]
    assert torch.equal(dk[:, :, unreached], clean[1][:, :, unreached])
    assert torch.equal(dv[:, :, unreached], clean[2][:, :, unreached])
    assert dk[:, :, :5].isnan().all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [(64, 64), (64, 8), (128, 1)])
def test_nothing_is_read_past_the_end(backend, block):
    # Ragged last blocks in both directions; the buffers go on with NaN behind the 70 rows.
    ready = plan(from_mask(causal(70, 70, 30), block))
    plain = qkv(1, 2, 2, 70, 70, 8, 8)
    buffers = [torch.full((1, 2, 256, 8), float("nan"), dtype=torch.float64) for _ in plain]
    for buffer, x in zip(buffers, plain, strict=True):
        buffer[:, :, :70] = x.detach()
    inputs = tuple(b[:, :, :70].requires_grad_() for b in buffers)
    assert_same(run(*inputs, ready, backend), run(*plain, ready, backend), 1e-13)


def test_rows_beyond_the_end_select_nothing():
    # q_len 18 in blocks of 16: the last row sees keys 19 to 23; row 18, if it existed, would see key 24 too.
    distance = np.arange(40) - (np.arange(18)[:, None] + 4)
    mask = ((distance >= -2) & (distance <= 2))[None]
    ready = plan(from_mask(mask, (16, 16), q_offset=4, bands=((-2, 2),)))
    q, k, v = qkv(1, 1, 1, 18, 40, 4, 4)
    wanted = run(q, k, v, ready, "blocked")
    unseen = slice(24, 40)
    got = run(q, poisoned(k, unseen, float("nan")), poisoned(v, unseen, float("nan")), ready, "blocked")
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_fresh_memory_is_never_trusted():
    # Whatever torch.empty returns is filled with NaN here; out, gradients and scratch rows must not show it.
    ready = plan(from_mask(causal(50, 50, 9), (16, 8)))
    inputs = qkv(1, 2, 1, 50, 50, 4, 4)
    wanted = run(*inputs, ready, "blocked")
    torch.use_deterministic_algorithms(True)  # makes torch fill uninitialised memory with NaN
    try:
        out, lse = block_sparse_attention(*inputs, ready, return_lse=True, backend="blocked")
        got = gradients(out, lse, inputs)
    finally:
        torch.use_deterministic_algorithms(False)
    assert_same(got, wanted, 1e-13)
