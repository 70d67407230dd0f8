"""An operator finds the lists that it was given before, and forgets them with their tensors."""

from __future__ import annotations

import gc

import torch

import pattern_studio as ps
from attention_core import plan
from attention_core.kernels.triton import interned as module
from attention_core.kernels.triton.interned import interned


def tensors() -> list[torch.Tensor]:
    return plan(ps.lower(ps.parse("causal"), q_len=40, block=16)).by_query.tensors()


def test_the_same_tensors_are_the_same_lists():
    given = tensors()
    lists = interned(given)
    assert interned(list(given)) is lists
    for mine, theirs in zip(lists.tensors(), given, strict=True):
        assert mine.data_ptr() == theirs.data_ptr()
        assert torch.equal(mine, theirs)


def test_one_other_tensor_is_other_lists():
    given = tensors()
    lists = interned(given)
    given[5] = given[5].clone()
    other = interned(given)
    assert other is not lists
    assert other.low.data_ptr() == given[5].data_ptr()
    assert interned(tensors()) is not lists


def test_lists_go_with_their_tensors():
    gc.collect()
    before = len(module._KNOWN)
    given = tensors()
    interned(given)
    assert len(module._KNOWN) == before + 1
    del given
    gc.collect()
    assert len(module._KNOWN) == before
