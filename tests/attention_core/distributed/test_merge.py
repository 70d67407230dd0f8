"""Parts of a softmax, merged: by hand, in plain torch, and by the fused programs in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_core.distributed.merge import merge, plain
from attention_core.kernels.triton.merge_parts import merge_parts


def test_parts_of_a_softmax():
    scores, values = torch.randn(5, 12, dtype=torch.float64), torch.randn(12, 3, dtype=torch.float64)
    scores.requires_grad_()
    scores_of = [scores[:, :4], scores[:, 4:4], scores[:, 4:]]
    values_of = [values[:4], values[4:4], values[4:]]
    parts = [
        ((s.softmax(1) @ v)[None, None], s.logsumexp(1)[None, None]) for s, v in zip(scores_of, values_of, strict=True)
    ]
    out, lse = merge(parts)
    torch.testing.assert_close(out[0, 0], scores.softmax(1) @ values)
    torch.testing.assert_close(lse[0, 0], scores.logsumexp(1))


@pytest.mark.parametrize("merging", [plain, lambda parts: merge_parts(*map(list, zip(*parts, strict=True)))])
def test_rows_without_keys_have_no_gradient(merging):
    out, lse = torch.zeros(1, 1, 2, 3, requires_grad=True), torch.full((1, 1, 2), -torch.inf, requires_grad=True)
    merged, total = merging([(out, lse), (out, lse)])
    assert merged.eq(0).all()
    assert total.eq(-torch.inf).all()
    merged.sum().backward()
    assert lse.grad is not None
    assert lse.grad.eq(0).all()
    assert out.grad is not None
    assert out.grad.eq(0).all()


@st.composite
def sets_of_parts(draw):
    parts, rows = draw(st.integers(2, 5)), draw(st.integers(0, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    dim, scale = draw(st.sampled_from([3, 16])), draw(st.sampled_from([1.0, 60.0]))
    out = torch.randn(parts, 1, 2, rows, dim, generator=generator)
    lse = scale * torch.randn(parts, 1, 2, rows, generator=generator)
    empty = torch.rand(lse.shape, generator=generator) < 0.4
    out, lse = torch.where(empty[..., None], 0.0, out).to(dtype), torch.where(empty, -torch.inf, lse)
    return out, lse, draw(st.booleans()), generator


@settings(max_examples=40, deadline=None)
@given(sets_of_parts())
def test_the_programs_are_as_exact_as_their_dtype(case):
    outs, lses, with_lse, generator = case
    d_out = torch.randn(outs.shape[1:], generator=generator).to(outs.dtype)
    d_lse = torch.randn(lses.shape[1:], generator=generator) if with_lse else None

    def results(merging, dtype):
        summed = torch.promote_types(dtype, torch.float32)
        inputs = [x.to(dtype).requires_grad_() for x in outs], [x.to(summed).requires_grad_() for x in lses]
        out, lse = merging(*inputs)
        told = [out, torch.where(lse == -torch.inf, 0.0, lse)] if with_lse else [out]
        torch.autograd.backward(told, [x.to(y.dtype) for x, y in zip([d_out, d_lse], told, strict=False)])
        return [out, lse, *(x.grad for x in (*inputs[0], *inputs[1]))]

    exact = results(lambda o, s: plain(list(zip(o, s, strict=True))), torch.float64)
    found = results(merge_parts, outs.dtype)
    for want, got in zip(exact, found, strict=True):
        tolerance = 2e-2 if got.dtype == torch.bfloat16 else 2e-5
        torch.testing.assert_close(got.double(), want.double(), atol=tolerance, rtol=tolerance)


def test_the_operator_is_what_a_compiler_is_told():
    outs = [torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(2)]
    lses = [torch.randn(1, 2, 5, requires_grad=True) for _ in range(2)]
    torch.library.opcheck(merge_parts, (outs, lses))
