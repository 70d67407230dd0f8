"""BlockSparseMultiheadAttention: nn.MultiheadAttention's contract under `dense`, and the pattern everywhere."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch import nn

from attention_core.modules.multihead import BlockSparseMultiheadAttention
from pattern_studio.errors import StudioError

from ..inputs import normal
from . import oracle
from .pairs import outcome, pair, reference

GEN = torch.Generator().manual_seed(0)


def assert_equal(theirs, ours, *inputs, tolerance=1e-5, **options):
    wanted, right, grads = outcome(theirs, *inputs, **options)
    out, weights, got = outcome(ours, *inputs, **options)
    assert (out.shape, out.dtype) == (wanted.shape, wanted.dtype)
    torch.testing.assert_close(out, wanted, rtol=tolerance, atol=tolerance)
    assert (weights is None) == (right is None)
    if weights is not None:
        torch.testing.assert_close(weights, right, rtol=tolerance, atol=tolerance)
    for name, grad in grads.items():
        torch.testing.assert_close(got[name], grad, rtol=tolerance, atol=tolerance, msg=lambda t, n=name: f"{n}: {t}")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True, "bias": False},
        {"batch_first": True, "kdim": 10, "vdim": 14},
        {"add_bias_kv": True, "batch_first": True},
        {"add_zero_attn": True, "add_bias_kv": True, "kdim": 6},
    ],
)
@pytest.mark.parametrize("need_weights", [True, False])
def test_equals_torch_under_dense(options, training, need_weights):
    theirs, ours = (m.train(training) for m in pair(24, 4, **options))
    q_shape = (3, 9) if options.get("batch_first") else (9, 3)
    kv_shape = (3, 11) if options.get("batch_first") else (11, 3)
    query = normal(*q_shape, 24, seed=0, dtype=torch.float32)
    key = normal(*kv_shape, options.get("kdim", 24), seed=1, dtype=torch.float32)
    value = normal(*kv_shape, options.get("vdim", 24), seed=2, dtype=torch.float32)
    padding = torch.zeros(3, 11, dtype=torch.bool)
    padding[1, 7:] = True
    padding[2, :2] = True
    mask = torch.rand(9, 11, generator=GEN) < 0.3
    mask[:, 3] = False
    per_head = torch.rand(12, 9, 11, generator=GEN) < 0.3
    per_head[:, :, 3] = False
    for masks in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": mask},
        {"attn_mask": per_head, "key_padding_mask": padding},
        {"attn_mask": torch.zeros(9, 11).masked_fill(mask, -torch.inf)},
        {"attn_mask": torch.randn(12, 9, 11, generator=GEN), "average_attn_weights": False},
        {"key_padding_mask": torch.randn(3, 11, generator=GEN), "attn_mask": torch.randn(9, 11, generator=GEN)},
    ):
        assert_equal(theirs, ours, query, key, value, need_weights=need_weights, **masks)


@pytest.mark.parametrize("batch_first", [True, False])
def test_unbatched(batch_first):
    theirs, ours = pair(16, 2, batch_first=batch_first)
    query, key = normal(5, 16, seed=0, dtype=torch.float32), normal(7, 16, seed=1, dtype=torch.float32)
    padding = torch.tensor([False] * 5 + [True] * 2)
    for need, average in ((True, True), (True, False), (False, True)):
        assert_equal(
            theirs, ours, query, key, key, key_padding_mask=padding, need_weights=need, average_attn_weights=average
        )
    assert_equal(theirs, ours, query, key, key, attn_mask=torch.randn(2, 5, 7, generator=GEN))


def test_float64_and_bfloat16():
    theirs, ours = pair(16, 4, batch_first=True, dtype=torch.float64)
    x = normal(2, 9, 16, seed=0)
    assert_equal(theirs, ours, x, x, x, tolerance=1e-12)
    # In bfloat16: at most twice torch's own error, for the output, the weights and every gradient.
    theirs, ours, x = theirs.bfloat16(), ours.bfloat16(), x.bfloat16()
    exact, right, truth = outcome(copy.deepcopy(theirs).double(), x.double(), x.double(), x.double())
    out, weights, got = outcome(ours, x, x, x)
    their_out, their_weights, their_grads = outcome(theirs, x, x, x)
    pairs = {"out": (out, their_out, exact), "weights": (weights, their_weights, right)}
    pairs |= {name: (got[name], their_grads[name], truth[name]) for name in truth}
    for name, (mine, torchs, true) in pairs.items():
        error, allowed = ((each.double() - true).abs().max() for each in (mine, torchs))
        assert error <= 2 * allowed, name


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_autocast(training, need_weights):
    theirs, ours = (m.train(training) for m in pair(32, 4, batch_first=True))
    x = normal(2, 20, 32, seed=0, dtype=torch.float32)
    exact = theirs(x, x, x, need_weights=need_weights)[0]
    with torch.autocast("cpu", torch.bfloat16):
        wanted, got = (outcome(m, x, x, x, need_weights=need_weights) for m in (theirs, ours))
    assert got[0].dtype == wanted[0].dtype
    assert (got[0] - exact).abs().max() <= 2 * (wanted[0] - exact).abs().max()
    if need_weights:
        assert got[1].dtype == wanted[1].dtype
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in got[2].values())


def test_dropout_of_weights_draws_as_torch_does():
    theirs, ours = pair(16, 4, dropout=0.4, batch_first=True)
    x = normal(2, 9, 16, seed=0, dtype=torch.float32)
    results = []
    for module in (theirs, ours):
        torch.manual_seed(3)
        results.append(module(x, x, x))
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted)


def test_state_dict_both_ways_and_signature():
    for options in ({}, {"kdim": 5, "vdim": 7}, {"bias": False}, {"add_bias_kv": True}):
        theirs, ours = pair(16, 4, **options)
        theirs.load_state_dict(ours.state_dict())
        assert list(theirs.state_dict()) == list(ours.state_dict())
    wanted, got = (inspect.signature(c).parameters for c in (nn.MultiheadAttention, BlockSparseMultiheadAttention))
    assert [*got][: len(wanted)] == [*wanted]
    wanted, got = (inspect.signature(c.forward) for c in (nn.MultiheadAttention, BlockSparseMultiheadAttention))
    more = [p for p in got.parameters.values() if p.kind == inspect.Parameter.KEYWORD_ONLY]
    assert [p.name for p in more] == ["docs"]
    assert [(p.name, p.default) for p in got.parameters.values() if p not in more] == [
        (p.name, p.default) for p in wanted.parameters.values()
    ]
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(16, 4)
    torch.manual_seed(1)
    assert torch.equal(theirs.in_proj_weight, BlockSparseMultiheadAttention(16, 4, pattern="dense").in_proj_weight)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(clone):
    _, ours = pair(16, 4, pattern="causal & window(3, 0)", batch_first=True)
    other = clone(ours)
    x = normal(2, 9, 16, seed=0, dtype=torch.float32)
    assert torch.equal(other(x, x, x)[0], ours(x, x, x)[0])
    assert other._qkv_same_embed_dim is False


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "text", ["causal & (window(3, 0) | sink(1))", "heads({0: window(2, 2), 1: strided(2), 2:4: causal})"]
)
def test_pattern_everywhere(text, need_weights):
    _, ours = pair(16, 4, pattern=text, batch_first=True, dtype=torch.float64)
    x = normal(2, 13, 16, seed=0)
    mask = oracle.allowed(text, 13, heads=4)
    padding = torch.zeros(2, 13, dtype=torch.bool)
    padding[1, 9:] = True
    table = torch.rand(13, 13, generator=GEN) < 0.2
    for options, extra in (
        ({}, True),
        ({"key_padding_mask": padding}, ~padding[:, None, None]),
        ({"attn_mask": table}, ~table),
        ({"is_causal": True}, oracle.allowed("causal", 13)),
    ):
        whole = (mask & extra).expand(2, 4, 13, 13)
        out, weights = ours(x, x, x, need_weights=need_weights, average_attn_weights=False, **options)
        wanted = reference(ours, x, whole)
        oracle.close(out, wanted, 1e-10)
        if need_weights:
            assert torch.equal(weights > 0, whole)
            oracle.close(weights.sum(-1), whole.any(-1).double(), 1e-10)
        got = torch.autograd.grad(out.square().sum(), [*ours.parameters()])
        right = torch.autograd.grad(wanted.square().sum(), [*ours.parameters()])
        for a, b in zip(got, right, strict=True):
            oracle.close(a, b, 1e-9)


def test_added_keys_are_seen_by_every_query_under_a_pattern():
    _, ours = pair(16, 2, pattern="causal & window(2, 0)", batch_first=True, add_bias_kv=True, add_zero_attn=True)
    x = normal(2, 7, 16, seed=0, dtype=torch.float32)
    mask = oracle.allowed("causal & window(2, 0)", 7)
    blocked = ~mask[0]
    theirs = nn.MultiheadAttention(16, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True)
    theirs.load_state_dict(ours.state_dict())
    table = torch.rand(7, 7, generator=GEN) < 0.3
    for need in (True, False):
        wanted = theirs(x, x, x, attn_mask=blocked | table, need_weights=need)
        got = ours(x, x, x, attn_mask=table, need_weights=need)
        torch.testing.assert_close(got[0], wanted[0])
    assert got[1] is None


@pytest.mark.parametrize("need_weights", [True, False])
def test_compiled_without_a_break(need_weights):
    torch._dynamo.reset()
    theirs, ours = pair(16, 4, batch_first=True, pattern="causal & window(4, 0)", dtype=torch.float64)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for length in (12, 20):
        x = normal(2, length, 16, seed=0)
        blocked = ~oracle.allowed("causal & window(4, 0)", length)[0]
        padding = torch.zeros(2, length, dtype=torch.bool)
        padding[1, -3:] = True
        options = {"key_padding_mask": padding, "need_weights": need_weights}
        wanted, right, grads = outcome(theirs, x, x, x, attn_mask=blocked, **options)
        out, weights, got = outcome(compiled, x, x, x, **options)
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
        if need_weights:
            torch.testing.assert_close(weights, right, rtol=0, atol=1e-12)
        for name, grad in grads.items():
            torch.testing.assert_close(got[f"_orig_mod.{name}"], grad, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("shapes", "options", "text"),
    [
        (((2, 8, 16), (2, 8, 16), (2, 7, 16)), {}, "key and value must be equally many"),
        (((2, 8, 16), (2, 8, 15), (2, 8, 16)), {}, "key must have 16 features, got 15"),
        (((8, 16), (2, 8, 16), (2, 8, 16)), {}, "must all have 3 dimensions, or all 2 without a batch, got 2, 3 and 3"),
        (
            ((2, 8, 16),) * 3,
            {"attn_mask": torch.zeros(7, 8, dtype=torch.bool)},
            r"\[q_len, kv_len\] = \[8, 8\] or \[batch \* heads, q_len, kv_len\] = \[8, 8, 8\], got \[7, 8\]",
        ),
        (((2, 8, 16),) * 3, {"attn_mask": torch.zeros(8, 8, dtype=torch.int32)}, r"must be bool \(True is blocked\)"),
        (
            ((2, 8, 16),) * 3,
            {"key_padding_mask": torch.zeros(2, 7).bool()},
            r"\[batch, kv_len\] = \[2, 8\], got \[2, 7\]",
        ),
    ],
)
def test_errors(shapes, options, text):
    ours = BlockSparseMultiheadAttention(16, 4, batch_first=True, pattern="dense")
    with pytest.raises(StudioError, match=text):
        ours(*(torch.zeros(s) for s in shapes), **options)


def test_weights_of_long_inputs_are_refused_before_they_are_made():
    ours = BlockSparseMultiheadAttention(8, 2, batch_first=True, pattern="causal & window(7, 0)", block=128)
    x = torch.zeros(1, 40_000, 8)
    with pytest.raises(StudioError, match=r"need_weights=True takes all .* = 3,200,000,000 scores.*need_weights=False"):
        ours(x, x, x)


@pytest.mark.parametrize("need_weights", [True, False])
def test_packed_documents_equal_running_alone(need_weights):
    _, ours = pair(16, 2, pattern="causal & (window(2, 0) | sink(1))", batch_first=True, block=4, dtype=torch.float64)
    x = normal(2, 12, 16, seed=0)
    out, _ = ours(x, x, x, need_weights=need_weights, docs=[[5, 7], [3, 0, 9]])
    for n, lengths in enumerate(((5, 7), (3, 9))):
        for part in (slice(0, lengths[0]), slice(lengths[0], 12)):
            alone = x[n : n + 1, part]
            oracle.close(out[n : n + 1, part], ours(alone, alone, alone)[0], 1e-12)


def test_padding_of_long_inputs_makes_no_table_of_pairs():
    _, ours = pair(8, 2, pattern="window(63, 63) | sink(4)", batch_first=True, block=128)
    x, padding = normal(2, 12_000, 8, seed=0, dtype=torch.float32), torch.zeros(2, 12_000, dtype=torch.bool)
    padding[0, 8_001:], padding[1, :77] = True, True
    out, _ = ours(x, x, x, key_padding_mask=padding, need_weights=False)
    layout = ours.source.latest.layout
    assert layout.bits.nbytes < 100_000  # a few distinct tiles, where a mask would be 288 MB
    alone = x[:1, :8_001]
    torch.testing.assert_close(out[:1, :8_001], ours(alone, alone, alone, need_weights=False)[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_what_the_pattern_leaves_out_changes_nothing(need_weights):
    _, ours = pair(16, 2, pattern="causal & window(3, 0)", batch_first=True, block=8, kdim=6, vdim=7)
    query = normal(1, 20, 16, seed=0, dtype=torch.float32)
    key, value = normal(1, 20, 6, seed=1, dtype=torch.float32), normal(1, 20, 7, seed=2, dtype=torch.float32)
    before = ours(query, key, value, need_weights=need_weights)[0]
    key[:, 12:] += 100
    value[:, 12:] -= 100
    after = ours(query, key, value, need_weights=need_weights)[0]
    assert torch.equal(after[:, :12], before[:, :12])
    assert not torch.allclose(after[:, 12:], before[:, 12:])
