"""Masked steps of the Hopper kernels allow what TileLists say: their compiled decision, executed, and its words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple, dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from attention_core.kernels.triton import words
from attention_core.kernels.triton.lists import TileLists
from attention_core.kernels.triton.words import words_of
from attention_core.tiles import EDGE

from .ptx import Memory, Program

THREADS = 128
STEPS = 2  # of one walk; more where two units have more


@dataclass(frozen=True)
class Sizes:
    """What a program is compiled for."""

    n: int
    granule: int
    block_q: int
    block_k: int
    has_bits: bool
    by_key: bool

    def __str__(self) -> str:
        blocks = f"{self.n}_of_{self.granule}_in_{self.block_q}x{self.block_k}"
        return f"{blocks}_{'bits' if self.has_bits else 'bands'}_by_{'key' if self.by_key else 'query'}"

    @property
    def units(self) -> int:
        return max(STEPS * self.n // self.granule, 2)

    @property
    def steps(self) -> int:
        return self.units * self.granule // self.n


CASES = [
    Sizes(n, granule, block_q, block_k, has_bits, by_key)
    for has_bits, by_key, sizes in (
        (True, False, ((128, 128, 128, 128), (64, 128, 256, 128), (64, 64, 256, 192))),
        (True, True, ((64, 128, 128, 128), (128, 128, 256, 128), (32, 128, 128, 256), (32, 128, 256, 128))),
        (True, False, ((128, 64, 128, 64), (128, 16, 256, 128), (128, 8, 128, 24))),
        (False, False, ((128, 128, 128, 128), (64, 128, 256, 128), (64, 16, 128, 16))),
        (False, True, ((64, 128, 256, 128), (32, 128, 128, 128))),
    )
    for n, granule, block_q, block_k in sizes
]


@pytest.fixture(scope="module")
def programs() -> dict[Sizes, Program]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    wanted = json.dumps([astuple(sizes) for sizes in CASES])
    command = [sys.executable, "-m", "tests.attention_core.compile_masks", wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, map(Program, json.loads(done.stdout.splitlines()[-1])), strict=True))


@dataclass(frozen=True, eq=False)
class Walk:
    """Lists of a few masked steps, the first positions of the 64 that they meet, and where the steps' side ends."""

    lists: TileLists
    firsts: list[int]
    length: int


def lists_of(sizes: Sizes, units: NDArray[np.int32], masks: NDArray[np.uint8]) -> TileLists:
    """TileLists of which only the masked tiles are used; units int32 [4, units]: first, low, high, bits."""
    line, tile = (sizes.block_k if sizes.by_key else sizes.block_q), max(sizes.n, sizes.granule)
    has_bits = bool((units[3] >= 0).any())
    none = torch.zeros(0, dtype=torch.int32)
    first, low, high, bits = torch.from_numpy(units)
    return TileLists(
        torch.tensor([line, 1, sizes.granule, tile, sizes.block_q, sizes.block_k, 0, has_bits]),
        none, none, none, first, low, high, bits, torch.from_numpy(masks), none, none, none,
    )  # fmt: skip


@st.composite
def walks(draw, sizes: Sizes) -> Walk:
    """Units near the 64 or at 0, with bands that cut them, are open, end at the diagonal or are empty."""
    line, other = (sizes.block_k, sizes.block_q) if sizes.by_key else (sizes.block_q, sizes.block_k)
    number = draw(st.integers(0, 9) | st.integers(EDGE // line - 3, EDGE // line - 1))
    firsts = [number * line + at for at in range(0, max(line, 64), 64) if number * line + at + 64 <= EDGE]
    nearest = firsts[0] // other * (other // sizes.granule)  # unit
    last = EDGE // sizes.granule - 1
    unit = st.tuples(
        st.just(0) | st.integers(-9, 9).map(lambda step: min(max(nearest + step, 0), last)),
        st.sampled_from(["cut", "cut", "causal", "open", "empty"]),
        st.integers(-200, 200),
        st.integers(-1, 300),
        st.integers(-1, 4) if sizes.has_bits else st.just(-1),
    )
    rows = []
    for number, band, begin, wide, bits in draw(st.lists(unit, min_size=sizes.units, max_size=sizes.units)):
        start = number * sizes.granule
        ahead = firsts[0] - start if sizes.by_key else start - firsts[0]
        low, high = {
            "cut": (ahead + begin, ahead + begin + wide),
            "causal": (-EDGE, begin),
            "open": (-EDGE, EDGE),
            "empty": (1, 0),
        }[band]
        rows.append((start, max(low, -EDGE), min(high, EDGE), bits))
    if sizes.has_bits and all(row[3] < 0 for row in rows):
        rows[-1] = (*rows[-1][:3], 0)
    end = draw(st.sampled_from([row[0] for row in rows]))
    length = draw(st.just(EDGE) | st.integers(end + 1, end + sizes.granule))
    masks = np.random.default_rng(draw(st.integers(0, 2**32))).integers(
        0, 256, (5, sizes.block_k, sizes.block_q // 8), np.uint8
    )
    return Walk(lists_of(sizes, np.array(rows, np.int32).T.copy(), masks), firsts, length)


def wanted(sizes: Sizes, walk: Walk, step: int, first: int) -> NDArray[np.bool_]:
    """The docstring of TileLists, pair by pair. # [64, n]"""
    lists, at = walk.lists, step * sizes.n + np.arange(sizes.n)
    unit = at // sizes.granule
    start, low, high, bits = (
        x.numpy().astype(np.int64)[unit] for x in (lists.masked_units, lists.low, lists.high, lists.bits)
    )
    other, own = start + at % sizes.granule, first + np.arange(64)[:, None]
    i, j = (other, own) if sizes.by_key else (own, other)
    byte = lists.masks.numpy()[np.maximum(bits, 0), j % sizes.block_k, i % sizes.block_q // 8]
    seen = (bits < 0) | (byte >> i % sizes.block_q % 8 & 1 == 1)
    return (low <= j - i) & (j - i <= high) & seen & (other < walk.length)


def decided(
    program: Program, sizes: Sizes, walk: Walk, cases: list[tuple[int, int]], far: bool = False
) -> NDArray[np.int32]:
    """What the program stores for each (step, first); with `far` as if 2^30 steps and 2^24 masks lay before these.

    # [cases, 64, n]
    """
    lists = walk.lists
    masks, bits = words_of(lists, sizes.n, sizes.by_key).numpy(), lists.bits.numpy()
    out = np.full((len(cases), 64, sizes.n), -1, np.int32)
    steps_before = 2**30 * min(sizes.granule, sizes.n) // sizes.n if far else 0
    masks_before = 2**24 if far else 0
    bits = np.where(bits < 0, bits, bits + masks_before)
    memory = Memory([lists.masked_units.numpy(), lists.low.numpy(), lists.high.numpy(), bits, masks, out])
    *units, masks_at, out_at = memory.addresses
    step, first = np.array(cases).T[..., None]
    arguments = [
        *(at - steps_before * sizes.n // sizes.granule * bits.itemsize for at in units),
        masks_at - masks_before * masks[0].nbytes,
        out_at + np.arange(len(cases))[:, None] * out[0].nbytes,
        steps_before + step, first, walk.length,
    ]  # fmt: skip
    program.run(memory, arguments, THREADS)
    return out


@pytest.mark.parametrize("sizes", CASES, ids=str)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.reuse, Phase.generate],  # shrinking takes minutes
)  # fmt: skip
@given(data=st.data())
def test_compiled_decisions_are_those_of_the_lists(programs, sizes, data):
    walk = data.draw(walks(sizes))
    cases = [(step, first) for step in range(sizes.steps) for first in walk.firsts]
    found = decided(programs[sizes], sizes, walk, cases, far=data.draw(st.booleans()))
    for case, decision in zip(cases, found, strict=True):
        np.testing.assert_array_equal(decision, wanted(sizes, walk, *case), f"step and first position: {case}")


@pytest.mark.parametrize("sizes", [CASES[0], CASES[3], CASES[7]], ids=str)
def test_a_step_past_the_lists_is_caught(programs, sizes):
    units = np.array([[0, -EDGE, EDGE, 0]] * sizes.units, np.int32).T.copy()
    masks = np.zeros((1, sizes.block_k, sizes.block_q // 8), np.uint8)
    walk = Walk(lists_of(sizes, units, masks), [0], EDGE)
    with pytest.raises(AssertionError, match="outside the arrays"):
        decided(programs[sizes], sizes, walk, [(sizes.steps, 0)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), st.integers(1, 12), st.sampled_from([128, 256]), st.integers(1, 3), st.integers(0, 2**32))
def test_words_hold_the_bits_of_the_masks_turned(count, key_words, queries, at_once, seed):
    masks = np.random.default_rng(seed).integers(0, 256, (count, key_words * 32, queries // 8), np.uint8)
    bits = np.unpackbits(masks, axis=2, bitorder="little").transpose(0, 2, 1)
    turned = np.packbits(np.ascontiguousarray(bits), axis=2, bitorder="little").view("<i4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "AT_ONCE", at_once)
        found = words._turned(torch.from_numpy(masks))
    assert found.dtype == torch.int32
    np.testing.assert_array_equal(found.numpy(), turned)


def test_words_are_made_once_and_only_where_steps_are_of_one_unit():
    sizes = Sizes(128, 64, 128, 64, True, False)
    masks = np.arange(2 * 64 * 16, dtype=np.uint8).reshape(2, 64, 16)
    units = np.array([[0, -EDGE, EDGE, bits] for bits in (-1, 1)], np.int32).T.copy()
    lists = lists_of(sizes, units, masks)
    assert words_of(lists, 128, by_key=False) is lists.masks  # steps of two units
    made = words_of(lists, 64, by_key=False)
    assert made.dtype == torch.int32
    assert made.shape == (2, 128, 2)
    assert words_of(lists, 32, by_key=False) is made
    by_key = words_of(lists, 64, by_key=True)
    assert by_key.data_ptr() == lists.masks.data_ptr()
    np.testing.assert_array_equal(by_key.numpy(), masks.view("<i4"))
    units[3] = -1
    without = lists_of(sizes, units, masks)
    assert words_of(without, 64, by_key=False) is without.masks
