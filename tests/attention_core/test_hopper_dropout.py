"""Dropout in the Hopper kernels: their arithmetic in plain torch, and on a card every cell against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pattern_studio as ps
from attention_core import Plan, block_sparse_attention, ops, plan
from attention_core.kernels import reference
from attention_core.kernels.dropout import Dropout
from attention_core.kernels.hopper import serves
from attention_core.kernels.triton.lists import TileLists
from benchmarks.hopper_cells import CELLS, errors, limit
from tests.attention_core.inputs import work_table

CUDA = torch.cuda.is_available()
HOPPER = CUDA and torch.cuda.get_device_capability() == (9, 0)
P, SEED = 0.3, 2**40 + 5


def needs(backend: str) -> None:
    if not (CUDA if backend == "triton" else HOPPER):
        pytest.skip(f"backend {backend!r} needs {'CUDA' if backend == 'triton' else 'compute capability 9.0'}")


@pytest.mark.parametrize(("dim", "dtype"), [(64, torch.float16), (128, torch.bfloat16)])
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("backend", ["triton", "hopper"])
def test_cell_against_float64(backend, name, dim, dtype):
    needs(backend)
    if dtype not in CELLS[name].halves:
        pytest.skip("the values of this cell are infinite in this dtype")
    found = errors(name, backend, dtype, dim, dropout_p=P)
    assert all(error <= limit(part, dtype) for part, error in found.items()), found


@pytest.mark.parametrize("name", ["one_tile", "per_batch_from_mask", "poisoned"])
def test_the_cells_hold_for_plain_torch(name):
    found = errors(name, "blocked", torch.float16, 64, "cpu", dropout_p=P)
    assert all(error <= limit(part, torch.float16) for part, error in found.items()), found
    assert set(found) == {"out", "lse"} | ({"dq", "dk", "dv"} if CELLS[name].ordinary else set())


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("backend", ["triton", "hopper"])
def test_exactly_the_pairs_of_dropout_py_are_kept(backend, dim):
    """With one weight for all keys, values and then gradients of one column each show every pair by itself."""
    needs(backend)
    q_len, kv_len, batch, heads = 256, 384, 2, 3
    ready = plan(ps.lower(ps.dense, q_len=q_len, kv_len=kv_len, block=128), "cuda")
    q, k = (torch.zeros(batch, heads, n, dim, device="cuda", dtype=torch.bfloat16) for n in (q_len, kv_len))
    b, h, i, j = torch.meshgrid(*(torch.arange(n, device="cuda") for n in (batch, heads, q_len, kv_len)), indexing="ij")
    wanted = Dropout(P, torch.tensor([SEED], device="cuda")).weights(b, h, i, j, torch.float32) > 0

    def columns(n: int, first: int) -> Tensor:
        return torch.eye(n, device="cuda", dtype=q.dtype)[:, first : first + dim].expand(batch, heads, n, dim)

    for first in range(0, kv_len, dim):
        v = columns(kv_len, first).clone()
        out = block_sparse_attention(q, k, v, ready, backend=backend, dropout_p=P, seed=SEED)
        assert torch.equal(out != 0, wanted[..., first : first + dim])
    for first in range(0, q_len, dim):
        v = torch.zeros_like(k).requires_grad_()
        out = block_sparse_attention(q, k, v, ready, backend=backend, dropout_p=P, seed=SEED, deterministic=True)
        (dv,) = torch.autograd.grad(out, v, columns(q_len, first))
        assert torch.equal(dv != 0, wanted[:, :, first : first + dim].mT)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", ["ragged", "grouped_heads", "bits", "split_rows", "rising"])
def test_a_forward_and_a_backward_may_be_of_two_kernels(name, dim):
    needs("hopper")
    from attention_core.kernels.hopper import launch, launch_backward
    from attention_core.kernels.triton import launch as portable

    cell, dtype = CELLS[name], torch.bfloat16
    q, k, v = cell.inputs(dtype, dim, "cuda")
    ready, scale = cell.plan("cuda"), cell.scale or dim**-0.5
    dropout = Dropout(P, torch.tensor([SEED], device="cuda"))
    exact = tuple(x.double().requires_grad_() for x in (q, k, v))
    out, lse = block_sparse_attention(
        *exact, ready, scale=cell.scale, return_lse=True, backend="reference", dropout_p=P, seed=SEED
    )
    dout, dlse = torch.randn_like(q), torch.randn(lse.shape, device="cuda")

    def wanted(given: Tensor) -> tuple[Tensor, ...]:
        """Exact gradients for the rounded out that a backward is given (benchmarks.hopper_cells.errors)."""
        moved = ((out - given) * dout).sum(-1).detach()
        return torch.autograd.grad((out, lse), exact, (dout.double(), dlse + moved), retain_graph=True)

    lists = ready.by_query, ready.by_key, scale
    ours = launch.attention_forward(q, k, v, ready.by_query, scale, dropout=dropout)
    theirs = portable.attention_forward(q, k, v, ready.by_query, scale, dropout)
    mixed = (
        (ours[0], portable.attention_backward(q, k, v, *ours, dout, dlse, *lists, dropout)),
        (theirs[0], launch_backward.attention_backward(q, k, v, *theirs, dout, dlse, *lists, dropout=dropout)),
    )
    for given, found in mixed:
        for a, b in zip(found, wanted(given), strict=True):
            assert (a.double() - b).abs().max() <= limit("dq", dtype) * b.abs().max().clamp(min=1)


def test_operator_with_dropout_is_sound():
    needs("hopper")
    from attention_core.kernels.hopper.op import attend_hopper

    q, k, v = (x.requires_grad_() for x in CELLS["one_tile"].inputs(torch.float16, 64, "cuda"))
    ready = CELLS["one_tile"].plan("cuda")
    lists = ready.by_query.tensors(), ready.by_key.tensors()
    seed = torch.tensor([SEED], device="cuda")
    checked = torch.library.opcheck(attend_hopper, (q, k, v, *lists, 0.125, False, P, seed))
    assert set(checked.values()) == {"SUCCESS"}


def test_auto_takes_them_for_dropout_only_once_that_is_proved(monkeypatch):
    monkeypatch.setattr(serves, "_machine", lambda q: None)
    q = torch.zeros(1, 1, 128, 64, dtype=torch.float16)
    ready, dropout = plan(ps.lower(ps.causal, q_len=128, block=128)), Dropout(P, torch.tensor([SEED]))
    for proved in (False, True):
        monkeypatch.setattr(serves, "DROPOUT_BY_AUTO", proved)
        assert ops._automatic(q, q, ready, None) == "hopper"
        assert ops._automatic(q, q, ready, dropout) == ("hopper" if proved else "blocked")


def tiles(lists: TileLists, begin: list[int]) -> list[Tensor]:
    """Positions of the units of an entry's tiles: first masked, masked, first full, full."""
    each, found = lists.tile // lists.granule, []
    for units, first, count in ((lists.masked_units, *begin[:2]), (lists.full_units, *begin[2:])):
        found += [units[u] + torch.arange(lists.granule) for u in range(first * each, (first + count) * each)]
    return found


def programs(ready: Plan, q, k, v, dout, lse, delta, scale, dropout) -> tuple[Tensor, ...]:
    """out, dq, dk and dv in float64 by the arithmetic of the programs: where they draw, and when they weigh."""
    (batch, heads, q_len, _), (kv_heads, kv_len) = q.shape, k.shape[1:3]
    ratio, weight = heads // kv_heads, dropout.weight
    allowed = reference.dense_mask(ready.runs)
    allowed = allowed.unflatten(0, (batch, heads)) if ready.batch else allowed
    allowed = allowed.expand(batch, heads, q_len, kv_len)
    out, dq, dk, dv = (torch.zeros_like(x) for x in (q, q, k, v))
    work = work_table(ready.by_query, batch, heads)
    for b, h, first, place, *begin in work.items[: work.counts[0]].tolist():
        assert place == -1  # no line of these is long enough to be split
        row = torch.arange(first, min(first + 128, q_len))
        for key in tiles(ready.by_query, begin):
            key = key[key < kv_len]
            p = (scale * q[b, h, row] @ k[b, h // ratio, key].T - lse[b, h, row, None]).exp()
            p = p.masked_fill(~allowed[b, h][row][:, key], 0)
            drawn = dropout.weights(*torch.tensor([b, h]), row[:, None], key, torch.float64) > 0
            p = torch.where(drawn, p, -p)
            out[b, h, row] += p.clamp(min=0) @ v[b, h // ratio, key]
            dp = torch.where(p > 0, dout[b, h, row] @ v[b, h // ratio, key].T * weight, 0)
            dq[b, h, row] += p.abs() * (dp - delta[b, h, row, None]) @ k[b, h // ratio, key]
    work = work_table(ready.by_key, batch, kv_heads, ratio)
    for b, h, first, place, *members in work.items[: work.counts[0]].tolist():
        assert place == -1
        key = torch.arange(first, min(first + 128, kv_len))
        for member in range(ratio):
            head = h * ratio + member
            for row in tiles(ready.by_key, members[4 * member : 4 * member + 4]):
                row = row[row < q_len]
                p = (scale * k[b, h, key] @ q[b, head, row].T - lse[b, head, row]).exp()
                p = p.masked_fill(~allowed[b, head][row][:, key].T, 0)
                drawn = dropout.weights(*torch.tensor([b, head]), row, key[:, None], torch.float64) > 0
                p = torch.where(drawn, p, -p)
                dv[b, h, key] += p.clamp(min=0) @ dout[b, head, row]
                dp = torch.where(p > 0, v[b, h, key] @ dout[b, head, row].T * weight, 0)
                dk[b, h, key] += p.abs() * (dp - delta[b, head, row]) @ q[b, head, row]
    return out * weight, dq * scale, dk * scale, dv * weight


@pytest.mark.parametrize("name", ["grouped_heads", "per_batch_from_mask", "bits", "fewer_keys_than_rows"])
def test_arithmetic_of_the_programs_in_plain_torch(name):
    cell = CELLS[name]
    inputs = tuple(x.double().requires_grad_() for x in cell.inputs(torch.float32, 64, "cpu"))
    ready, dropout = cell.plan("cpu"), Dropout(P, torch.tensor([SEED]))
    out, lse = block_sparse_attention(*inputs, ready, return_lse=True, backend="reference", dropout_p=P, seed=SEED)
    generator = torch.Generator().manual_seed(1)
    dout, dlse = (torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in (out, lse))
    dq, dk, dv = torch.autograd.grad((out, lse), inputs, (dout, dlse))
    with torch.no_grad():
        empty = lse == -torch.inf
        delta = ((out * dout).sum(-1) - dlse).masked_fill(empty, 0)
        found = programs(ready, *inputs, dout, lse.masked_fill(empty, torch.inf), delta, 64**-0.5, dropout)
    for a, b in zip(found, (out, dq, dk, dv), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-9, atol=1e-9)
