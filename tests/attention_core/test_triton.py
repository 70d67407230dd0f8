"""The fused kernels against the float64 reference: on a GPU, or the same source in Triton's interpreter."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

import pattern_studio as ps
from attention_core import Plan, block_sparse_attention, plan
from attention_core.kernels.triton import launch
from tests import strategies
from tests.attention_core.inputs import gradients, normal, qkv, upstream
from tests.attention_core.layouts import from_mask

# Keys past the end stand as zeros in a full tile's unused rows; what the interpreter's numpy makes of them is not kept.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter computes bfloat16 products wrongly (Triton 3.6 and 3.9), so that dtype is for GPUs.
HALVES = [torch.float16, torch.bfloat16] if DEVICE == "cuda" else [torch.float16]


def compare(
    layout: ps.BlockLayout,
    *,
    kv_heads: int | None = None,
    dim: int = 16,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    batch: int = 1,
    scale: float | None = None,
    deterministic: bool = False,
    inputs: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Fused out, lse, dq, dk, dv against float64 on the same inputs; returns the fused ones."""
    problem = layout.problem
    shapes = [
        (batch, problem.heads, problem.q_len, dim),
        (batch, kv_heads or problem.heads, problem.kv_len, dim),
        (batch, kv_heads or problem.heads, problem.kv_len, value_dim or dim),
    ]
    if inputs is None:
        inputs = tuple(normal(*s, seed=n).to(dtype).to(DEVICE) for n, s in enumerate(shapes))
    ready = plan(layout, device=DEVICE)

    def run(dtype: torch.dtype, backend: str, d: tuple[Tensor, Tensor] | None = None):
        q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs)
        out, lse = block_sparse_attention(
            q, k, v, ready, scale=scale, return_lse=True, backend=backend, deterministic=deterministic
        )
        return gradients(out, lse, (q, k, v), d)

    wanted = run(torch.float64, "reference")
    d_out, d_lse = upstream(*wanted[:2])
    found = run(dtype, "triton", (d_out.to(dtype), d_lse.float()))
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2 if dtype == torch.bfloat16 else 4e-3
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
        assert torch.equal(a.isinf(), b.isinf()), name
        a, b = a.double().nan_to_num(nan=torch.nan, neginf=0), b.nan_to_num(nan=torch.nan, neginf=0)
        limit = tolerance * max(float(b.abs().max()) if b.numel() else 1.0, 1.0)
        torch.testing.assert_close(a, b, atol=limit, rtol=0, msg=lambda text, name=name: f"{name}: {text}")
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    strategies.patterns(heads=2),
    strategies.problems(heads=2, longest=60),
    st.sampled_from([16, 17, 32, 64]),
    st.sampled_from([1, 3, 8, 16, 24, 64]),
    st.booleans(),
)
def test_any_pattern(pattern, problem, block_q, block_k, deterministic):
    compare(ps.lower(pattern, problem, block=(block_q, block_k)), deterministic=deterministic)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("block", [(64, 64), (32, 16), (64, 1), (128, 32)])
def test_dtypes_and_blocks(dtype, block):
    pattern = ps.parse("causal & (window(40, 0) | sink(3) | random(5, seed=1))")
    compare(ps.lower(pattern, q_len=150, kv_len=170, heads=1, block=block), dim=32, dtype=dtype)


@pytest.mark.parametrize(
    ("dim", "value_dim"), [(16, 16), (31, 31), (64, 32), (64, 128), (96, 96), (192, 16), (256, 256)]
)
def test_head_dims(dim, value_dim):
    layout = ps.lower(ps.causal & ps.window(20, 0), q_len=50, heads=1, block=(32, 16))
    compare(layout, dim=dim, value_dim=value_dim)


@pytest.mark.parametrize("block", [(32, 32), (32, 4)])
def test_grouped_heads_of_a_ratio_that_is_no_power_of_two(block):
    """A12, native-sparse-attention-triton#27."""
    pattern = ps.heads({range(0, 4): ps.causal, range(4, 6): ps.random(9, seed=3)})
    layout = ps.lower(pattern, q_len=70, heads=6, block=block)
    compare(layout, kv_heads=2, dim=16, value_dim=32)


def test_empty_rows_and_unused_keys():
    """A9, tilelang#1330: an empty query block gives 0, -inf and zero gradients; unused keys get zeros."""
    pattern = ps.heads(
        {0: ps.causal, 1: ps.rect(range(0, 128), range(0, 192)) | ps.rect(range(192, 256), range(0, 192))}
    )
    out, lse, dq, dk, dv = compare(ps.lower(pattern, q_len=256, heads=2, block=64), dim=16)
    assert (out[0, 1, 128:192] == 0).all()
    assert (lse[0, 1, 128:192] == -torch.inf).all()
    assert (dq[0, 1, 128:192] == 0).all()
    assert (dk[0, 1, 192:] == 0).all()
    assert (dv[0, 1, 192:] == 0).all()


def test_nothing_past_the_end_and_no_unseen_key_is_read():
    """A5, pytorch#159247, flashinfer#5090: padded keys dominate; here what must not be read is NaN."""
    layout = ps.lower(ps.causal & ps.window(9, 0), q_len=70, kv_len=130, heads=1, block=(32, 64))
    buffers = [torch.full((1, 1, 200, 16), torch.nan, device=DEVICE) for _ in range(3)]
    for n, (buffer, length) in enumerate(zip(buffers, (70, 130, 130), strict=True)):
        buffer[:, :, :length] = normal(1, 1, length, 16, seed=n).float()
    q, k, v = (b[:, :, :n] for b, n in zip(buffers, (70, 130, 130), strict=True))
    v[:, :, :20] = torch.nan  # no query sees these keys
    out = block_sparse_attention(q, k, v, plan(layout, device=DEVICE), backend="triton")
    v[:, :, :20] = 0
    wanted = block_sparse_attention(q, k, v, plan(layout, device=DEVICE), backend="reference")
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("block", [(32, 32), (40, 64), (64, 64), (16, 128)])
def test_bit_masks_in_words_and_keys_that_no_row_sees(block):
    """Steps of one unit read their masks in words; (40, 64) has rows beyond the block in its last octet."""
    mask = np.random.default_rng(3).random((2, 150, 200)) < 0.4
    mask[:, :, [7, 90, 130]] = False  # in the middle of tiles
    mask[1, 30:110] = False  # rows without keys, in units with masks and without
    ready = plan(from_mask(mask, block), DEVICE)
    assert ready.by_query.has_bits
    q, k, v = qkv(1, 2, 2, 150, 200, 16, 16, torch.float32, DEVICE)
    wanted = gradients(*block_sparse_attention(q, k, v, ready, return_lse=True, backend="reference"), (q, k, v))
    with torch.no_grad():
        k[:, :, [7, 90, 130]] = v[:, :, [7, 90, 130]] = torch.nan
    got = gradients(*block_sparse_attention(q, k, v, ready, return_lse=True, backend="triton"), (q, k, v))
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), got, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_all_scores_equal_and_far_below_zero():
    """A5's values, and rows whose scores are all -100000: -inf stands for no key, not a large number."""
    layout = ps.lower(ps.causal, q_len=130, heads=1, block=64)
    q, k = torch.ones(1, 1, 130, 64, device=DEVICE), -torch.ones(1, 1, 130, 64, device=DEVICE)
    v = normal(1, 1, 130, 64, seed=0).float().to(DEVICE)
    compare(layout, dim=64, scale=1 / 8, inputs=(q, k, v))
    # At -100000 a float32 LSE resolves 0.008, so only the forward, which needs no LSE, is exact.
    out = block_sparse_attention(q, k, v, plan(layout, device=DEVICE), scale=100000 / 64, backend="triton")
    means = v.double().cumsum(2) / torch.arange(1, 131, device=DEVICE)[:, None]
    torch.testing.assert_close(out.double(), means, atol=1e-5, rtol=1e-5)


def test_long_rows_are_split_and_merged():
    layout = ps.lower(ps.dense, q_len=16, kv_len=3000, heads=1, block=(16, 64))
    ready = plan(layout, device=DEVICE)
    assert ready.by_query.splits.shape[1] > 0
    compare(layout)
    tall = ps.lower(ps.globals(cols=(range(0, 16),)), q_len=1500, kv_len=16, heads=2, block=(64, 16))
    assert plan(tall, device=DEVICE).by_key.splits.shape[1] > 0
    compare(tall, kv_heads=1, deterministic=True)


def test_strides_and_broadcast_heads():
    layout = ps.lower(ps.causal & ps.window(10, 0), q_len=40, heads=1, block=16)
    raw = [normal(2, 40, 3, 32, seed=n).float().to(DEVICE).transpose(1, 2)[..., ::2] for n in range(3)]
    q, k, v = (x.detach().requires_grad_() for x in raw)
    ready = plan(layout, device=DEVICE)
    found = gradients(*block_sparse_attention(q, k, v, ready, return_lse=True, backend="triton"), (q, k, v))
    wanted = gradients(*block_sparse_attention(q, k, v, ready, return_lse=True, backend="reference"), (q, k, v))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_scales_that_are_not_positive(scale):
    compare(ps.lower(ps.causal & ps.window(10, 0), q_len=40, heads=1, block=16), scale=scale)


def test_operator_is_sound_and_refuses_double_backward():
    from attention_core.kernels.triton.op import attend

    layout = ps.lower(ps.causal, q_len=20, heads=1, block=16)
    q, k, v = (normal(1, 1, 20, 16, seed=n).float().to(DEVICE).requires_grad_() for n in range(3))
    ready = plan(layout, device=DEVICE)
    checked = torch.library.opcheck(
        attend, (q, k, v, ready.by_query.tensors(), ready.by_key.tensors(), 0.25, 0.0, None)
    )
    assert set(checked.values()) == {"SUCCESS"}
    out = block_sparse_attention(q, k, v, ready, backend="triton")
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once, got a second time"):
        torch.autograd.grad(dq.sum(), q)


def test_eager_calls_and_the_operator_are_one():
    """A call that something looks at (here a counter of work) goes through the operator, with the same bits."""
    layout = ps.lower(ps.causal & ps.window(9, 0), q_len=20, heads=1, block=16)
    inputs = tuple(normal(1, 1, 20, 16, seed=n).float().to(DEVICE).requires_grad_() for n in range(3))
    ready = plan(layout, device=DEVICE)

    def found() -> tuple[Tensor, ...]:
        out, lse = block_sparse_attention(
            *inputs, ready, return_lse=True, backend="triton", deterministic=True, dropout_p=0.5, seed=1
        )
        return gradients(out, lse, inputs)

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    eager = found()
    with Names():
        seen = found()
    assert {"pattern_studio::attend", "pattern_studio::attend_backward"} <= set(names)
    assert all(torch.equal(a, b) for a, b in zip(eager, seen, strict=True))


def test_compiles_whole_and_not_again_for_another_pattern():
    """A pattern is data: other tiles of one problem run what was compiled for the first."""
    layouts = [ps.lower(p, q_len=40, heads=2, block=16) for p in (ps.causal, ps.window(3, 3), ps.random(9, seed=1))]
    inputs = tuple(normal(1, 2, 40, 16, seed=n).float().to(DEVICE).requires_grad_() for n in range(3))

    def attend(q: Tensor, k: Tensor, v: Tensor, ready: Plan) -> Tensor:
        return block_sparse_attention(q * 1.5, k, v, ready, backend="triton")

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, backend=counter, fullgraph=True)
    for layout in layouts:
        ready = plan(layout, device=DEVICE)
        _ = ready.by_query, ready.by_key  # as plan() does on CUDA
        wanted, got = attend(*inputs, ready), compiled(*inputs, ready)
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-6)
        for a, b in zip(*(torch.autograd.grad(x.sum(), inputs) for x in (got, wanted)), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert counter.frame_count <= 2  # once more at most, for the number of tiles becoming a symbol


def test_plans_survive_pickle_and_deepcopy():
    layout = ps.lower(ps.causal & ps.strided(3), q_len=40, heads=1, block=16)
    q, k, v = (normal(1, 1, 40, 16, seed=n).float().to(DEVICE) for n in range(3))
    ready = plan(layout, device=DEVICE)
    wanted = block_sparse_attention(q, k, v, ready, backend="triton")
    for again in (pickle.loads(pickle.dumps(ready)), copy.deepcopy(ready)):
        assert torch.equal(block_sparse_attention(q, k, v, again, backend="triton"), wanted)


def test_deterministic_backward_is_bitwise_repeatable():
    layout = ps.lower(ps.random(12, seed=1), q_len=40, heads=1, block=(16, 4))
    first = compare(layout, deterministic=True)
    for a, b in zip(first, compare(layout, deterministic=True), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("shape", "block", "dtype", "message"),
    [
        ((1, 1, 64, 300), 32, torch.float32, "head_dim 300 or value_dim 300 is above 256"),
        ((1, 1, 64, 16), 8, torch.float32, "block_q 8 is not from 16 to 256"),
        ((1, 1, 64, 16), 32, torch.float64, "q is float64, not float16, bfloat16 or float32"),
    ],
)
def test_what_it_cannot_serve_is_refused(shape, block, dtype, message):
    ready = plan(ps.lower(ps.causal, q_len=64, block=block), device=DEVICE)
    x = torch.zeros(shape, dtype=dtype, device=DEVICE)
    with pytest.raises(ps.StudioError, match=message):
        block_sparse_attention(x, x, x, ready, backend="triton")


def test_no_keys_are_not_described_to_the_copy_engine(monkeypatch):
    """Found on a card: a box over a tensor of length 0 is an error of Triton's."""
    monkeypatch.setattr(launch, "_has_copy_engine", lambda device: True)
    assert launch._box(torch.zeros(1, 2, 0, 64, dtype=torch.float16, device=DEVICE), 64, 64, 128) is None
    assert launch._box(torch.zeros(1, 2, 9, 64, dtype=torch.float16, device=DEVICE), 64, 64, 128) is not None
