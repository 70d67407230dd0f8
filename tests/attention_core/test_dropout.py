"""Dropout on probabilities: one decision for each pair, whatever computes it, and statistics that are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels.dropout import Dropout, words
from attention_core.kernels.triton.primitives import dropout_weights

from .inputs import gradients, normal, qkv
from .layouts import from_mask

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEEDS = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 0x1234_5678_9ABC_DEF0]


def tensor(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, device=DEVICE)


@pytest.mark.parametrize(
    ("counter", "key", "word"),
    [
        ((0, 0, 0, 0), (0, 0), 0x5F6FB709),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, 0x5207DDC2),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), 0x4DFCCABA),
    ],
)
def test_words_are_those_of_random123(counter, key, word):
    """The known answers of philox4x32 with 7 rounds in Random123's kat_vectors."""
    seed = key[0] | key[1] << 32
    seed = tensor(seed - 2**64 if seed >= 2**63 else seed)
    assert words(seed, *(tensor(c) for c in counter)).item() == word


@triton.jit
def _weights(seed, out, batch, head, first_row, first_key, threshold, weight):
    row, key = first_row + tl.arange(0, 16), first_key + tl.arange(0, 32)
    found = dropout_weights(seed, batch, head, row[:, None], key[None, :], threshold, weight)
    tl.store(out + tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :], found)


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(SEEDS) | st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 65535),
    st.integers(0, 2**30),
    st.integers(0, 2**30),
    st.floats(1e-12, 1, exclude_max=True),
)
def test_fused_decisions_are_bit_identical(seed, batch, head, row, key, p):
    dropout = Dropout(p, tensor(seed))
    out = torch.empty(16, 32, device=DEVICE)
    _weights[(1,)](
        dropout.seed, out, tensor(batch)[0].item(), head, row, key, dropout.threshold - 2**31, dropout.weight
    )
    rows, keys = torch.arange(row, row + 16, device=DEVICE), torch.arange(key, key + 32, device=DEVICE)
    wanted = dropout.weights(tensor(batch), tensor(head), rows[:, None], keys, torch.float32)
    assert torch.equal(out, wanted)


def test_chance_and_independence():
    n = torch.arange(512, device=DEVICE)
    for p in (0.1, 0.5, 0.9):
        kept = Dropout(p, tensor(7)).weights(n[:2, None, None], n[3], n[:, None], n, torch.float64) > 0
        deviation = math.sqrt(p * (1 - p) / kept.numel())
        assert abs(kept.double().mean().item() - (1 - p)) < 5 * deviation
        # Neighbours along batch, row and key agree as often as independent ones do.
        same = p * p + (1 - p) ** 2
        for dim in range(3):
            agree = (kept.narrow(dim, 1, kept.shape[dim] - 1) == kept.narrow(dim, 0, kept.shape[dim] - 1)).double()
            assert abs(agree.mean().item() - same) < 5 * math.sqrt(same * (1 - same) / agree.numel())
    places = [tensor(a).view(1, 1) for a in (0, 0)]
    one, two = (Dropout(0.5, tensor(seed)).weights(*places, n[:, None], n, torch.float64) for seed in (7, 8))
    assert abs((one == two).double().mean().item() - 0.5) < 5 * 0.5 / 512


def by_hand(q, k, v, mask, p, seed):
    """Attention with dropout, pair by pair in Python integers."""
    heads, dim = q.shape[1], q.shape[3]
    allowed = torch.from_numpy(mask).to(q.device)
    ratio = heads // k.shape[1]
    scores = q @ k.repeat_interleave(ratio, 1).mT / math.sqrt(dim)
    scores = scores.masked_fill(~allowed, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = torch.zeros(scores.shape, dtype=q.dtype)
    threshold = round(p * 2**32)
    for b, h, i, j in np.ndindex(*scores.shape):
        weights[b, h, i, j] = (philox((j, i, h, b), seed) >= threshold) / (1 - threshold / 2**32)
    kept = (scores - lse[..., None]).exp() * weights.to(q.device)
    return kept @ v.repeat_interleave(ratio, 1), lse


def philox(counter: tuple[int, ...], seed: int) -> int:
    c, k, word = counter, (seed & 0xFFFFFFFF, seed >> 32), 0xFFFFFFFF
    for _ in range(7):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = ((b >> 32) ^ c[1] ^ k[0], b & word, (a >> 32) ^ c[3] ^ k[1], a & word)
        k = ((k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word)
    return c[0]


@pytest.mark.parametrize("block", [(16, 16), (32, 1)])
@pytest.mark.parametrize(("backend", "deterministic"), [("blocked", False), ("reference", False), ("triton", True),
                                                        ("triton", False)])  # fmt: skip
def test_every_backend_and_block_drops_the_same_pairs(backend, deterministic, block):
    pattern, seed, p = ps.parse("causal & (window(9, 0) | strided(5))"), 2**40 + 5, 0.3
    mask = np.repeat(ps.dense_mask(pattern, ps.Problem(20, 20)).reshape(1, 20, 20), 2, 0)
    ready = plan(ps.lower(pattern, q_len=20, block=block), DEVICE)
    exact = qkv(2, 2, 1, 20, 20, 16, 8, device=DEVICE)
    wanted = gradients(*by_hand(*exact, mask, p, seed), exact)
    dtype = torch.float32 if backend == "triton" else torch.float64
    inputs = tuple(x.detach().to(dtype).requires_grad_() for x in exact)
    out, lse = block_sparse_attention(
        *inputs, ready, return_lse=True, backend=backend, deterministic=deterministic, dropout_p=p, seed=seed
    )
    got = gradients(out, lse, inputs)
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), got, wanted, strict=True):
        tolerance = 2e-5 if dtype == torch.float32 else 1e-11
        torch.testing.assert_close(a.double(), b, atol=tolerance, rtol=tolerance, msg=lambda m, name=name: name + m)


@pytest.mark.parametrize("block", [(16, 64)])
def test_long_rows_split_over_programs_drop_the_same_pairs(block):
    ready = plan(ps.lower(ps.dense, q_len=16, kv_len=1200, heads=1, block=block), DEVICE)
    assert ready.by_query.splits.shape[1] > 0
    inputs = qkv(1, 1, 1, 16, 1200, 16, 16, torch.float32, DEVICE)
    fused, plain = (
        gradients(*block_sparse_attention(*inputs, ready, return_lse=True, backend=b, dropout_p=0.5, seed=3), inputs)
        for b in ("triton", "blocked")
    )
    for a, b in zip(fused, plain, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("backend", ["blocked", "reference", "triton"])
def test_empty_rows_and_documents_stay_as_they_are(backend):
    mask = np.random.default_rng(1).random((2, 32, 32)) < 0.4
    mask[:, [3, 20]] = False
    ready = plan(from_mask(mask, (16, 8)), DEVICE)
    inputs = qkv(1, 2, 2, 32, 32, 8, 8, torch.float32, DEVICE)
    out, lse = block_sparse_attention(*inputs, ready, return_lse=True, backend=backend, dropout_p=0.4, seed=1)
    _, whole = block_sparse_attention(*inputs, ready, return_lse=True, backend=backend)
    assert torch.equal(lse, whole)
    found = gradients(out, lse, inputs)
    assert (found[0][:, :, [3, 20]] == 0).all()
    assert (found[1][:, :, [3, 20]] == -torch.inf).all()
    assert (found[2][:, :, [3, 20]] == 0).all()
    assert all(x.isfinite().all() for x in found[2:])


@pytest.mark.parametrize("backend", ["blocked", "reference"])
def test_mean_over_seeds_is_attention_without_dropout(backend):
    ready = plan(ps.lower(ps.causal, q_len=16, block=16), DEVICE)
    q, k, v = (x.detach().float() for x in qkv(40, 4, 4, 16, 16, 8, 8, device=DEVICE))
    q, k, v = (x[:1].expand(40, -1, -1, -1) for x in (q, k, v))  # forty draws for the same numbers
    plain = block_sparse_attention(q[:1], k[:1], v[:1], ready, backend=backend)
    dropped = block_sparse_attention(q, k, v, ready, backend=backend, dropout_p=0.5, seed=11)
    error = (dropped.mean(0) - plain[0]) / (dropped.std(0) / math.sqrt(40) + 1e-6)
    assert error.abs().mean() < 1.2  # of a standard deviation; 0.8 is what chance gives
    assert len({x.sum().item() for x in dropped}) == 40  # batch entries draw for themselves


@pytest.mark.parametrize("backend", ["blocked", "triton"])
def test_without_a_seed_torchs_generator_decides(backend):
    ready = plan(ps.lower(ps.causal, q_len=20, block=16), DEVICE)
    inputs = qkv(1, 1, 1, 20, 20, 16, 16, torch.float32, DEVICE)

    def attend(*x):
        return block_sparse_attention(*x, ready, backend=backend, dropout_p=0.5)

    torch.manual_seed(5)
    first, second = attend(*inputs), attend(*inputs)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    again = attend(*inputs)
    assert torch.equal(again, first)
    wanted = torch.autograd.grad(again.sum(), inputs)
    torch.manual_seed(5)
    saved = checkpoint(attend, *inputs, use_reentrant=False)
    torch.rand(3)  # what others draw between forward and backward changes nothing
    assert torch.equal(saved, first)
    got = torch.autograd.grad(saved.sum(), inputs)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(got, wanted, strict=True))
    before = torch.random.get_rng_state()
    block_sparse_attention(*inputs, ready, backend=backend)
    block_sparse_attention(*inputs, ready, backend=backend, dropout_p=0.5, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_seed_tensor_is_the_number_it_holds():
    ready = plan(ps.lower(ps.causal, q_len=20, block=16), DEVICE)
    inputs = tuple(x.detach() for x in qkv(1, 1, 1, 20, 20, 8, 8, device=DEVICE))
    one, two = (block_sparse_attention(*inputs, ready, dropout_p=0.5, seed=s) for s in (9, torch.tensor(9).to(DEVICE)))
    assert torch.equal(one, two)


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan"), "0.1", True])
def test_dropout_p_is_refused(p):
    ready, x = plan(ps.lower(ps.causal, q_len=8, block=8)), normal(1, 1, 8, 4, seed=1)
    with pytest.raises(ps.StudioError, match=r"dropout_p must be a number at least 0 and below 1, got"):
        block_sparse_attention(x, x, x, ready, dropout_p=p)


@pytest.mark.parametrize(
    ("seed", "text"),
    [
        (-1, r"seed must be None, a whole number from 0 to 2\*\*63 - 1 or an int64 tensor, got -1"),
        (2**63, "got 9223372036854775808"),
        (1.0, "got 1.0"),
        (torch.zeros(2, dtype=torch.int64), r"int64 with one element on q's device cpu, got int64 \[2\] on cpu"),
        (torch.zeros(1), r"got float32 \[1\] on cpu"),
    ],
)
def test_seed_is_refused(seed, text):
    ready, x = plan(ps.lower(ps.causal, q_len=8, block=8)), normal(1, 1, 8, 4, seed=1)
    with pytest.raises(ps.StudioError, match=text):
        block_sparse_attention(x, x, x, ready, dropout_p=0.1, seed=seed)


def test_operator_with_dropout_is_sound():
    from attention_core.kernels.triton.op import attend

    ready = plan(ps.lower(ps.causal, q_len=20, heads=1, block=16), DEVICE)
    q, k, v = qkv(1, 1, 1, 20, 20, 16, 16, torch.float32, DEVICE)
    lists = ready.by_query.tensors(), ready.by_key.tensors()
    checked = torch.library.opcheck(attend, (q, k, v, *lists, 0.25, 0.5, tensor(3)))
    assert set(checked.values()) == {"SUCCESS"}
