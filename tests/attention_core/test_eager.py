"""Eager calls: gradients only where they are wanted, none lost unseen, and the operator for whoever looks."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels import eager
from tests.attention_core.inputs import DEVICE

READY = plan(ps.lower(ps.parse("causal"), q_len=20, block=16), device=DEVICE)


def inputs(*wanted: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, 20, 16, device=DEVICE, requires_grad=grad) for grad in wanted]


@pytest.mark.parametrize("wanted", [(False, False, False), (True, True, True), (False, True, False)])
def test_a_graph_where_an_input_wants_gradients(wanted):
    q, k, v = inputs(*wanted)
    out, lse = block_sparse_attention(q, k, v, READY, backend="triton", return_lse=True)
    assert out.requires_grad == lse.requires_grad == any(wanted)
    with torch.no_grad():
        other = block_sparse_attention(q, k, v, READY, backend="triton")
    assert not other.requires_grad
    assert torch.equal(other, out)
    if any(wanted):
        (out.sum() + lse.sum()).backward()
    assert [x.grad is not None for x in (q, k, v)] == list(wanted)


def test_inference_mode():
    q, k, v = inputs(True, True, True)
    wanted = block_sparse_attention(q, k, v, READY, backend="triton")
    with torch.inference_mode():
        out = block_sparse_attention(q, k, v, READY, backend="triton")
    assert out.is_inference()
    assert torch.equal(out, wanted)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, in make_dual
@pytest.mark.parametrize("grad", [False, True])
def test_forward_mode_gradients_are_refused_not_lost(grad):
    q, k, v = inputs(grad, grad, grad)
    with forward_ad.dual_level(), pytest.raises((RuntimeError, NotImplementedError), match=r"jvp|forward"):
        block_sparse_attention(forward_ad.make_dual(q, torch.ones_like(q)), k, v, READY, backend="triton")


class Other(torch.Tensor):
    """A tensor of another class."""


def test_who_looks_sees_the_operator():
    seen: list[str] = []

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    q, k, v = inputs(False, False, False)
    wanted = block_sparse_attention(q, k, v, READY, backend="triton")
    assert eager.nobody_looks(q, k, v)
    with Looking():
        assert not eager.nobody_looks(q, k, v)
        out = block_sparse_attention(q, k, v, READY, backend="triton")
    assert "pattern_studio.attend.default" in seen
    assert torch.equal(out, wanted)
    assert not eager.nobody_looks(q, torch.Tensor._make_subclass(Other, k), v)
    assert eager.nobody_looks(q, torch.nn.Parameter(k), v)
