"""The reference against a row-by-row implementation that knows neither masks nor layouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention_core import plan
from attention_core.kernels import reference

from . import naive
from .inputs import assert_same, gradients, qkv, run
from .layouts import causal, from_mask


@pytest.mark.parametrize(("heads", "kv_heads", "layout_heads"), [(2, 2, 2), (6, 2, 6), (6, 2, 1), (4, 1, 4)])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.6, 1.0])
def test_equals_naive(heads, kv_heads, layout_heads, density):
    mask = np.random.default_rng(1).random((layout_heads, 13, 17)) < density
    inputs = qkv(2, heads, kv_heads, 13, 17, 5, 3)
    wanted = gradients(*naive.attention(*inputs, mask), inputs)
    assert_same(run(*inputs, plan(from_mask(mask, (4, 8))), "reference"), wanted, 1e-12)


def test_scale():
    mask = causal(9, 9)
    inputs = qkv(1, 1, 1, 9, 9, 4, 4)
    wanted = gradients(*naive.attention(*inputs, mask, scale=-0.3), inputs)
    assert_same(run(*inputs, plan(from_mask(mask, (4, 4))), "reference", scale=-0.3), wanted, 1e-12)


def test_empty_rows_drawn_by_hand():
    # Row 0 sees both keys with equal scores, row 1 nothing.
    mask = torch.tensor([[[True, True], [False, False]]])
    q = torch.zeros(1, 1, 2, 1, dtype=torch.float64, requires_grad=True)
    k = torch.tensor([[[[1.0], [2.0]]]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[[[10.0], [20.0]]]], dtype=torch.float64, requires_grad=True)
    out, lse = reference.attention(q, k, v, mask, 1.0)
    assert out.flatten().tolist() == [15, 0]
    assert lse.flatten().tolist() == [pytest.approx(np.log(2)), -np.inf]
    dq, dk, dv = torch.autograd.grad((out, lse), (q, k, v), (torch.ones_like(out), torch.ones_like(lse)))
    # d out / d q = sum_j p_j (v_j - out) k_j = (-5 * 1 + 5 * 2) / 2; d lse / d q = mean k; the empty row adds nothing.
    assert dq.flatten().tolist() == [2.5 + 1.5, 0]
    assert dk.flatten().tolist() == [0, 0]
    assert dv.flatten().tolist() == [0.5, 0.5]


def test_gradients_by_differences():
    mask = torch.from_numpy(np.random.default_rng(3).random((2, 4, 5)) < 0.6)
    mask[:, 1] = False
    inputs = qkv(1, 2, 1, 4, 5, 3, 2)
    seen = mask.any(-1)

    def finite(q, k, v):
        out, lse = reference.attention(q, k, v, mask, 0.7)
        return out, lse.masked_fill(~seen, 0)

    assert torch.autograd.gradcheck(finite, inputs)
    assert torch.autograd.gradgradcheck(finite, inputs)


@pytest.mark.parametrize("block", [(8, 8), (5, 3), (64, 1), (1, 64)])
@pytest.mark.parametrize("offset", [None, 0, -4, 9])
def test_dense_mask_expands_the_plan(block, offset):
    mask = np.random.default_rng(2).random((3, 21, 26)) < 0.7
    mask[1] = np.abs(np.arange(26) - (np.arange(21)[:, None] + (5 if offset is None else offset))) <= 3
    layout = from_mask(mask, block, offset, bands=((-3, 3),))
    np.testing.assert_array_equal(reference.dense_mask(plan(layout).runs).numpy(), mask)
