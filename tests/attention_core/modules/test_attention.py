"""BlockSparseAttention against float64: heads, padding, documents, token masks, autocast, compiled graphs."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_core.modules.attention import BlockSparseAttention
from attention_core.modules.compiled import attend_pattern
from attention_core.modules.plan_cache import PlanCache
from pattern_studio.errors import StudioError

from ..inputs import normal, qkv
from . import oracle


def grads(out, inputs):
    return torch.autograd.grad(out, inputs, normal(*out.shape, seed=9, dtype=out.dtype))


def same_as_oracle(attention, inputs, mask, tolerance=1e-9, **options):
    out = attention(*inputs, **options)
    wanted = oracle.attention(*inputs, mask)
    oracle.close(out, wanted, tolerance)
    for got, right in zip(grads(out, inputs), grads(wanted, inputs), strict=True):
        assert got.isfinite().all()
        oracle.close(got, right, tolerance)


@pytest.mark.parametrize(
    "text", ["causal & (window(5, 0) | sink(2))", "heads({0: dense, 1:4: window(3, 1), 4:6: causal})"]
)
@pytest.mark.parametrize(("q_len", "kv_len"), [(37, 37), (5, 40)])
def test_patterns_by_head_with_grouped_keys(text, q_len, kv_len):
    inputs = qkv(2, 6, 2, q_len, kv_len, 8, 4)  # a ratio that is no power of two, as in case A12
    attention = BlockSparseAttention(text, block=(16, 8))
    same_as_oracle(attention, inputs, oracle.allowed(text, q_len, kv_len, heads=6))


def test_layer():
    text = "layers({0: dense, 1: causal & window(2, 0)})"
    inputs = qkv(1, 2, 2, 20, 20, 8, 8)
    same_as_oracle(BlockSparseAttention(text, layer=1), inputs, oracle.allowed("causal & window(2, 0)", 20))
    with pytest.raises(StudioError, match="this pattern differs by layer"):
        BlockSparseAttention(text)(*inputs)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=23, max_size=23), min_size=1, max_size=3),
    st.sampled_from([(8, 8), (16, 1), (64, 64)]),
    st.booleans(),
)
def test_any_padding_per_item(rows, block, causal):
    padding = torch.tensor(rows)
    text = "heads({0: window(6, 6) | sink(3), 1: strided(3)})"
    mask = oracle.allowed(text, 23, heads=2)[None] & ~padding[:, None, None]
    mask = mask & oracle.allowed("causal", 23)[None] if causal else mask
    attention = BlockSparseAttention(text, block=block)
    inputs = qkv(len(rows), 2, 1, 23, 23, 4, 4)
    same_as_oracle(attention, inputs, mask, key_padding_mask=padding, is_causal=causal)


def test_padded_keys_are_not_read():
    attention = BlockSparseAttention("dense", block=8)
    q, k, v = qkv(2, 2, 2, 24, 24, 8, 8)
    padding = torch.zeros(2, 24, dtype=torch.bool)
    padding[1, 8:] = True
    wanted = attention(q, k, v, key_padding_mask=padding)
    with torch.no_grad():
        k[1, :, 8:], v[1, :, 8:] = torch.nan, torch.inf
    assert torch.equal(attention(q, k, v, key_padding_mask=padding), wanted)


def test_a8_documents_equal_running_alone():
    lengths = (3, 5, 1, 0, 7)
    attention = BlockSparseAttention("causal & (window(2, 0) | sink(1))", block=4)
    q, k, v = qkv(1, 2, 2, 16, 16, 8, 8)
    out = attention(q, k, v, docs=lengths)
    start = 0
    for n in lengths:
        part = slice(start, start + n)
        if n:
            oracle.close(out[:, :, part], attention(q[:, :, part], k[:, :, part], v[:, :, part]), 1e-12)
        start += n
    with torch.no_grad():
        k[:, :, :3] += 1e3
        v[:, :, :3] += 1e3
    assert torch.equal(attention(q, k, v, docs=lengths)[:, :, 3:], out[:, :, 3:])


def test_documents_by_item():
    attention = BlockSparseAttention("causal", block=4)
    inputs = qkv(2, 1, 1, 8, 8, 4, 4)
    packed = [[3, 5], [8]]
    mask = torch.stack([oracle.allowed("causal.within(docs)", 8, docs=tuple(d)) for d in packed])
    same_as_oracle(attention, inputs, mask, docs=packed)
    same_as_oracle(attention, inputs, mask, docs=torch.tensor([[3, 5], [8, 0]]))
    own = BlockSparseAttention("causal & docs", block=4)  # a pattern that speaks of documents is left as it is
    same_as_oracle(own, inputs, mask, docs=packed)


def test_token_masks_narrow_the_pattern():
    inputs = qkv(3, 2, 2, 19, 19, 4, 4)
    mine = torch.rand(3, 2, 19, 19, generator=torch.Generator().manual_seed(0)) < 0.5
    mine[0, 0, 4] = False
    attention = BlockSparseAttention("window(5, 5)", block=8)
    same_as_oracle(attention, inputs, mine & oracle.allowed("window(5, 5)", 19), allowed=mine)
    shared = mine[:1, :1]
    same_as_oracle(attention, inputs, shared & oracle.allowed("window(5, 5)", 19), allowed=shared)


def test_a_causal_token_mask_costs_no_table():
    attention = BlockSparseAttention("dense", block=8, plan_cache=PlanCache())
    inputs = qkv(1, 1, 1, 40, 40, 4, 4)
    same_as_oracle(attention, inputs, oracle.allowed("causal", 40), allowed=oracle.allowed("causal", 40)[None])
    assert len(attention.source.latest.layout.bits) == 0


def test_empty_batch_and_lengths():
    attention = BlockSparseAttention("causal", block=8)
    for shape in ((0, 2, 5, 4), (1, 2, 0, 4)):
        x = torch.zeros(shape)
        assert attention(x, x, x).shape == shape
    q, none = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 0, 4)
    assert torch.equal(attention(q, none, none), q)


def test_a14_mixed_dtypes():
    attention = BlockSparseAttention("causal & window(9, 0)", block=16)
    q, k, v = (x.detach().float() for x in qkv(1, 2, 2, 33, 33, 16, 16))
    inputs = [q.requires_grad_(), k.requires_grad_(), v.bfloat16().requires_grad_()]
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(*inputs)
    cast = [x.detach().bfloat16().requires_grad_() for x in inputs]
    wanted = attention(*cast)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, wanted)
    for x, got, right in zip(inputs, grads(out, inputs), grads(wanted, cast), strict=True):
        assert got.dtype == x.dtype
        assert torch.equal(got, right.to(x.dtype))
    with pytest.raises(StudioError, match="q, k and v must have one dtype, got q float32, k float32, v bfloat16"):
        attention(*inputs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_without_a_break_for_any_length_and_pattern(backend):
    attention = BlockSparseAttention("causal & window(5, 0)", block=16)
    torch._dynamo.reset()
    compiled = torch.compile(attention, backend=backend, fullgraph=True, dynamic=True)
    for length in (20, 50):
        inputs = [x.detach().float().requires_grad_() for x in qkv(2, 2, 1, length, length, 8, 8)]
        padding = torch.zeros(2, length, dtype=torch.bool)
        padding[1, 9:] = True
        mask = oracle.allowed("causal & window(5, 0)", length)[None] & ~padding[:, None, None]
        same_as_oracle(compiled, inputs, mask, 1e-5, key_padding_mask=padding)
    inputs = [x.detach().float().requires_grad_() for x in qkv(2, 2, 1, 50, 50, 8, 8)]
    attention.set_pattern("causal & window(2, 0)")  # a pattern is data: the next run has it
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(*inputs, key_padding_mask=padding)
    same_as_oracle(compiled, inputs, oracle.allowed("causal & window(2, 0)", 50), 1e-5)


def test_compiled_with_each_kernel_below_it():
    torch._dynamo.reset()
    inputs = qkv(1, 2, 2, 20, 20, 8, 8)
    for backend in ("blocked", "reference"):
        attention = BlockSparseAttention("window(3, 2)", block=8, backend=backend)
        same_as_oracle(
            torch.compile(attention, backend="aot_eager", fullgraph=True), inputs, oracle.allowed("window(3, 2)", 20)
        )


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_change_apart(clone):
    attention = BlockSparseAttention("causal", block=8)
    other = clone(attention)
    other.set_pattern("window(0, 0)")
    q, k, v = qkv(1, 1, 1, 12, 12, 4, 4)
    oracle.close(other(q, k, v), v)
    oracle.close(attention(q, k, v), oracle.attention(q, k, v, oracle.allowed("causal", 12)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"key_padding_mask": torch.zeros(2, 7, dtype=torch.bool)},
            r"shape \[batch, kv_len\] = \[2, 8\], got \[2, 7\]",
        ),
        ({"key_padding_mask": torch.zeros(2, 8)}, "must be bool, True where a key is padding, got torch.float32"),
        ({"docs": [4, 5]}, "document lengths must add up to kv_len 8, got a sum of 9"),
        ({"docs": [[8]] * 3}, "docs must be one list of lengths or one for each of 2 items, got 3"),
        ({"docs": torch.zeros(2)}, "docs takes document lengths as whole numbers"),
        ({"allowed": torch.ones(8, 8, dtype=torch.bool)}, r"\[batch or 1, heads or 1, q_len, kv_len\]"),
        (
            {"allowed": torch.ones(1, 1, 8, 9, dtype=torch.bool)},
            r"allowed must be for q_len 8 and kv_len 8, got \[8, 9\]",
        ),
        ({"allowed": torch.ones(1, 1, 8, 8)}, "allowed must be bool, True where a pair may be used"),
    ],
)
def test_errors_say_what_to_do(options, text):
    x = torch.zeros(2, 2, 8, 4)
    with pytest.raises(StudioError, match=text):
        BlockSparseAttention("dense", block=8)(x, x, x, **options)


def test_errors_of_the_pattern_and_inputs():
    with pytest.raises(StudioError, match="pattern must be a Pattern, its text or a SparsePatternConfig, got int"):
        BlockSparseAttention(3)
    with pytest.raises(StudioError, match=r"dropout must be a probability from 0 to below 1, got 1\.5"):
        BlockSparseAttention("dense", dropout=1.5)
    with pytest.raises(StudioError, match=r"query must have 4 dimensions \[batch, heads, length, dim\], got 3"):
        BlockSparseAttention("dense")(*torch.zeros(3, 2, 8, 4))


@pytest.mark.parametrize("padded", [False, True])
def test_dropout_in_training_only(padded):
    attention = BlockSparseAttention("causal & window(40, 0)", block=16, dropout=0.25)
    q, k, v = (x.detach() for x in qkv(2, 2, 2, 64, 64, 8, 8))
    padding = torch.zeros(2, 64, dtype=torch.bool)
    padding[1, 50:] = padded
    run = lambda: attention(q, k, v, key_padding_mask=padding)  # noqa: E731
    mask = oracle.allowed("causal & window(40, 0)", 64)[None] & ~padding[:, None, None]
    torch.manual_seed(0)
    first, second = run(), run()
    torch.manual_seed(0)
    assert torch.equal(run(), first)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    mean = sum(run() for _ in range(30)) / 30
    assert (mean - oracle.attention(q, k, v, mask)).abs().max() < 0.9
    ones = torch.ones_like(v)  # each row then sums what was kept: 3/4 of it, times 4/3
    kept = attention(q, k, ones, key_padding_mask=padding)[:, :, 1:, 0]
    assert 0.95 < kept.mean() < 1.05
    attention.eval()
    oracle.close(run(), oracle.attention(q, k, v, mask), 1e-10)


def test_dropout_in_compiled_graphs_has_the_gradients_of_what_it_dropped():
    torch._dynamo.reset()
    attention = BlockSparseAttention("causal", block=16, dropout=0.5)
    q, k, v = qkv(1, 2, 2, 30, 30, 8, 8)
    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
    out = compiled(q, k, v)
    d_v = torch.autograd.grad(out.sum(), v)[0]
    # Linear in v, so its gradient says what the forward computed.
    oracle.close((d_v * v).sum(), out.sum(), 1e-9)


def test_more_items_times_heads_than_one_problem_has():
    attention = BlockSparseAttention("window(1, 0)", block=16)
    inputs = qkv(21_900, 3, 1, 4, 4, 2, 2, torch.float32)  # 65,700 heads of items that differ
    padding = torch.zeros(21_900, 4, dtype=torch.bool)
    padding[::2, 3] = True
    mask = oracle.allowed("window(1, 0)", 4)[None] & ~padding[:, None, None]
    same_as_oracle(attention, inputs, mask, 1e-5, key_padding_mask=padding)


@pytest.mark.parametrize("padded", [False, True])
def test_the_operator_is_what_it_declares(padded):
    attention = BlockSparseAttention("causal & window(3, 0)", block=8)
    inputs = [x.detach().float().requires_grad_() for x in qkv(2, 2, 1, 12, 12, 4, 4)]
    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[1, 8:] = True
    options = (padding if padded else None, None, None, None, False, None, 0, 0.5, 0.0, "auto", False)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(attend_pattern, (*inputs, attention.source.number, *options), test_utils=checks)
