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

GEN = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def slow_path():
    """torch's fast path is what some of the reported faults lie in; the slow one is the contract."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def pair(
    *args, pattern: str = "dense", block=16, **options
) -> tuple[nn.MultiheadAttention, BlockSparseMultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(*args, **options)
    ours = BlockSparseMultiheadAttention(*args, **options, pattern=pattern, block=block)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def outcome(module, *inputs, **options):
    """Output, weights, and the gradients of all parameters under a fixed upstream gradient."""
    out, weights = module(*inputs, **options)
    loss = (out * normal(*out.shape, seed=5, dtype=out.dtype)).sum()
    if weights is not None:
        loss = loss + (weights * normal(*weights.shape, seed=6, dtype=weights.dtype)).sum()
    return (
        out,
        weights,
        dict(zip(dict(module.named_parameters()), torch.autograd.grad(loss, [*module.parameters()]), strict=True)),
    )


def assert_equal(theirs, ours, *inputs, tolerance=1e-5, **options):
    wanted, right, grads = outcome(theirs, *inputs, **options)
    out, weights, got = outcome(ours, *inputs, **options)
    assert (out.shape, out.dtype) == (wanted.shape, wanted.dtype)
    torch.testing.assert_close(out, wanted, rtol=tolerance, atol=tolerance)
    assert (weights is None) == (right is None)
    if weights is not None:
        torch.testing.assert_close(weights, right, rtol=tolerance, atol=tolerance)
    for name, grad in grads.items():
        torch.testing.assert_close(
            got[name], grad, rtol=10 * tolerance, atol=10 * tolerance, msg=lambda t, n=name: f"{n}: {t}"
        )


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
    theirs, ours = theirs.bfloat16(), ours.bfloat16()
    assert_equal(theirs, ours, x.bfloat16(), x.bfloat16(), x.bfloat16(), tolerance=3e-2)


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


def projected(module, x):
    """q, k, v of a self-attention, float64 [batch, heads, length, head_dim]."""
    packed = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    return [t.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for t in packed]


def reference(module, x, mask):
    out = oracle.attention(*projected(module, x), mask).transpose(1, 2).flatten(2)
    return nn.functional.linear(out, module.out_proj.weight, module.out_proj.bias)


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


def test_a15_per_head_masks_and_float_masks_in_eval():
    theirs, ours = (m.eval() for m in pair(16, 4, batch_first=True))
    x = normal(2, 8, 16, seed=0, dtype=torch.float32)
    mask = torch.rand(8, 8, 8, generator=GEN) < 0.5
    mask[:, range(8), range(8)] = False
    with torch.no_grad():
        got = ours(x, x, x, attn_mask=mask, average_attn_weights=False)
    wanted = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(got[0], wanted[0], rtol=1e-5, atol=1e-6)
    for n in range(2):
        for h in range(4):
            assert torch.equal(got[1][n, h] == 0, mask[n * 4 + h])  # True is blocked, slice n * heads + h
    theirs, ours = pair(256, 8, batch_first=True)
    x, bias = normal(1, 10, 256, seed=1, dtype=torch.float32), torch.randn(10, 10, generator=GEN)
    train = ours(x, x, x, attn_mask=bias)[0]
    with torch.no_grad():
        for need in (True, False):
            still = ours.eval()(x, x, x, attn_mask=bias, need_weights=need)[0]
            torch.testing.assert_close(still, train)
            torch.testing.assert_close(
                still, theirs(x, x, x, attn_mask=bias, need_weights=need)[0], rtol=1e-5, atol=1e-5
            )
    learned = bias.requires_grad_()
    grad = [torch.autograd.grad(m(x, x, x, attn_mask=learned)[0].square().sum(), learned)[0] for m in (ours, theirs)]
    torch.testing.assert_close(*grad)


def test_a16_one_blocked_query_poisons_nothing():
    ours = BlockSparseMultiheadAttention(1, 1, pattern="dense", batch_first=True, block=4, dtype=torch.float64)
    x = torch.rand(4, 2, 1, generator=GEN, dtype=torch.float64).transpose(0, 1)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    i, j = torch.arange(4)[:, None], torch.arange(4)
    keep = (j == i) | (j == i - 1)
    mask = torch.zeros(4, 4, dtype=torch.float64).masked_fill(~keep, -torch.inf)
    nn.init.normal_(ours.out_proj.bias, generator=GEN)
    results = []
    for need in (True, False):
        out, weights = ours(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=need)
        assert torch.equal(out[1, 3], ours.out_proj.bias)
        if need:
            assert torch.equal(weights[1, 3], torch.zeros(4, dtype=torch.float64))
        grads = torch.autograd.grad(out[~padding].square().sum(), [*ours.parameters()])
        results.append((out, *grads))
    wanted = reference(ours, x, keep & ~padding[:, None, None])
    right = torch.autograd.grad(wanted[~padding].square().sum(), [*ours.parameters()])
    for both in zip(*results, (wanted, *right), strict=True):
        assert all(t.isfinite().all() for t in both)
        oracle.close(both[0], both[2], 1e-12)
        oracle.close(both[1], both[2], 1e-12)


@pytest.mark.parametrize("fast", [True, False])
def test_a17_no_fast_path_goes_around_the_module(fast, monkeypatch):
    torch.backends.mha.set_fastpath_enabled(fast)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 8, batch_first=True, dropout=0.0).eval()
    x = normal(4, 6, 32, seed=0, dtype=torch.float32)
    dense = layer(x)
    ours = BlockSparseMultiheadAttention(32, 8, batch_first=True, pattern="window(2, 2)", block=4)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours.eval()
    calls = []
    forward = ours.forward
    monkeypatch.setattr(ours, "forward", lambda *a, **k: calls.append(1) or forward(*a, **k))
    with torch.inference_mode():
        out = layer(x)
    assert len(calls) == 1
    torch.testing.assert_close(out, layer(x))
    hidden = layer.norm1(x + _windowed(ours, x))
    torch.testing.assert_close(out, layer.norm2(hidden + layer.linear2(torch.relu(layer.linear1(hidden)))))
    assert not torch.allclose(out, dense)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = torch.zeros(4, 6, dtype=torch.bool)
    padding[0, 4:] = True
    with torch.inference_mode():
        whole = encoder(x, src_key_padding_mask=padding)
    torch.testing.assert_close(whole, encoder(x, src_key_padding_mask=padding))


def _windowed(module, x):
    blocked = ~oracle.allowed("window(2, 2)", x.shape[1])[0]
    plain = nn.MultiheadAttention(32, 8, batch_first=True)
    plain.load_state_dict(module.state_dict())
    return plain(x, x, x, attn_mask=blocked, need_weights=False)[0]


def test_causal_encoder_layer_passes_hint_and_mask():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True, dropout=0.0)
    x, mask = normal(2, 9, 16, seed=0, dtype=torch.float32), nn.Transformer.generate_square_subsequent_mask(9)
    wanted = layer(x, src_mask=mask, is_causal=True)
    ours = BlockSparseMultiheadAttention(16, 2, batch_first=True, pattern="dense", block=4)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours
    torch.testing.assert_close(layer(x, src_mask=mask, is_causal=True), wanted)
    assert len(ours.source.latest.layout.bits) == 0  # the causal mask was named, not tabled


@pytest.mark.parametrize("need_weights", [True, False])
def test_compiled_without_a_break(need_weights):
    torch._dynamo.reset()
    theirs, ours = pair(16, 4, batch_first=True, pattern="causal & window(4, 0)")
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for length in (12, 20):
        x = normal(2, length, 16, seed=0, dtype=torch.float32)
        blocked = ~oracle.allowed("causal & window(4, 0)", length)[0]
        padding = torch.zeros(2, length, dtype=torch.bool)
        padding[1, -3:] = True
        options = {"key_padding_mask": padding, "need_weights": need_weights}
        wanted, right, grads = outcome(theirs, x, x, x, attn_mask=blocked, **options)
        out, weights, got = outcome(compiled, x, x, x, **options)
        torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
        if need_weights:
            torch.testing.assert_close(weights, right, rtol=1e-5, atol=1e-5)
        for name, grad in grads.items():
            torch.testing.assert_close(got[f"_orig_mod.{name}"], grad, rtol=1e-4, atol=1e-4)


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
