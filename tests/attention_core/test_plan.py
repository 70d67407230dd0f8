"""Plans: what they hold, copies, and what they refuse."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch

import pattern_studio as ps
from attention_core import Plan, plan
from attention_core.kernels import reference

from .inputs import DEVICES, assert_same, qkv, run
from .layouts import causal, from_mask


@pytest.fixture
def ready() -> Plan:
    mask = np.random.default_rng(1).random((2, 30, 40)) < 0.5
    mask[0, :16, :16] = True
    return plan(from_mask(mask, (8, 8)))


def test_full_runs_come_first():
    # One query block over key blocks PARTIAL, FULL, EMPTY, FULL, PARTIAL (ragged).
    mask = np.zeros((1, 4, 19), bool)
    mask[0, 0, :4] = mask[0, :, 4:8] = mask[0, :, 12:16] = mask[0, 1, 16] = True
    runs = plan(from_mask(mask, (4, 4))).runs
    assert runs.first.tolist() == [4, 12, 0, 16]
    assert runs.key_ptr.tolist() == [0, 4, 8, 12, 15]
    assert runs.partial.tolist() == [2]
    assert runs.mask.tolist()[:2] == [-1, -1]
    assert (runs.line_keys.tolist(), runs.line_full.tolist()) == ([15], [8])


def test_masks_are_key_major():
    mask = np.zeros((1, 12, 3), bool)
    mask[0, [0, 9], 1] = True
    masks = plan(from_mask(mask, (12, 3))).runs.masks
    assert masks.tolist() == [[[0, 0], [1, 2], [0, 0]]]


@pytest.mark.parametrize("offset", [-(2**31 - 1), -5, 0, 9, 2**31 - 1])
def test_bands_fit_int32_at_any_offset(offset):
    # Bands whose bounds cancel the offset: five keys a row, one open to the left, one open to the right.
    for low, high in ((-2, 2), (-(2**40), 1), (-3, 2**40)):
        bounds = (low - offset if low > -(2**40) else low), (high - offset if high < 2**40 else high)
        distance = np.arange(30) - (np.arange(20)[:, None] + offset)
        mask = ((distance >= bounds[0]) & (distance <= bounds[1]))[None]
        ready = plan(from_mask(mask, (8, 8), offset, bands=(bounds,)))
        runs = ready.runs
        assert runs.banded
        assert runs.low.dtype == runs.high.dtype == torch.int32
        np.testing.assert_array_equal(reference.dense_mask(runs).numpy(), mask)
        inputs = qkv(1, 1, 1, 20, 30, 4, 4)
        assert_same(run(*inputs, ready, "blocked"), run(*inputs, ready, "reference"), 1e-12)


def test_memory_follows_runs_not_lengths():
    pattern = ps.parse("causal & window(4095, 0)")
    ready = plan(ps.lower(pattern, q_len=1_048_576, block=128, heads=8))
    held = sum(t.nbytes for t in vars(ready.runs).values() if isinstance(t, torch.Tensor))
    assert held < 4e6  # 8192 lines of 3 runs; a tile list would take 33 tiles a line and head


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_compute_the_same(ready, duplicate):
    inputs = qkv(1, 2, 2, 30, 40, 4, 4)
    twin = duplicate(ready)
    assert (twin.problem, twin.block, twin.device) == (ready.problem, ready.block, ready.device)
    for a, b in zip(run(*inputs, twin), run(*inputs, ready), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_moves_between_devices(ready, device):
    moved = ready.to(device)
    assert moved.device.type == device
    back = moved.to("cpu")
    for a, b in zip(run(*qkv(1, 2, 2, 30, 40, 4, 4), back), run(*qkv(1, 2, 2, 30, 40, 4, 4), ready), strict=True):
        assert torch.equal(a, b)


def test_is_immutable_and_independent_of_the_layout():
    layout = from_mask(causal(16, 16), (8, 8))
    ready = plan(layout)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ready.block = (1, 1)  # type: ignore[misc]
    before = run(*qkv(1, 1, 1, 16, 16, 4, 4), ready)
    layout.rows.start[:] = 0
    after = run(*qkv(1, 1, 1, 16, 16, 4, 4), ready)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_refuses_anything_but_a_sound_layout(ready):
    with pytest.raises(ps.StudioError, match=r"takes a BlockLayout, got Plan; make one with pattern_studio\.lower"):
        plan(ready)  # type: ignore[arg-type]
    layout = from_mask(causal(16, 16), (8, 8))
    layout.rows.start[-1] = 7
    with pytest.raises(ps.StudioError, match="not a sound layout: expected runs inside 2 key blocks"):
        plan(layout)
