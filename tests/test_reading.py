"""Reading back: names where they fit, lists where none does, and the same mask again in every case."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.reading import read_block_mask, read_mask, read_mask_mod
from tests import strategies


def again(reading) -> np.ndarray:
    layout = ps.lower(reading.pattern, reading.problem, block=16)
    return np.array([layout.expand(head) for head in range(reading.problem.heads)])


def name(text: str, problem: ps.Problem | None = None) -> str:
    problem = problem or ps.Problem(48)
    mask = ps.dense_mask(ps.parse(text), problem)[0]
    reading = read_mask(mask, problem.q_offset)
    np.testing.assert_array_equal(again(reading)[0], mask)
    assert reading.named
    return str(reading.pattern)


@pytest.mark.parametrize(
    "text",
    [
        "dense",
        "empty",
        "causal",
        "causal.T",
        "causal >> 3",
        "window(3, 2)",
        "causal & window(0, 0)",
        "causal & window(7, 0)",
        "causal & (window(7, 0) | sink(2))",
        "causal & (window(3, 0) | vertical((range(10, 14), 30)))",
        "causal & (window(3, 0) | slash((7, 12, range(20, 24))))",
        "slash((5, range(8, 10))) | slash((3,)).T",
        "window(3, 3) | globals(rows=(range(0, 2),), cols=(range(0, 2),))",
        "causal | sink(10)",
        "dilated(3, 2, rate=4)",
        "causal & dilated(4, 0, rate=3)",
        "strided(5)",
        "strided(4) >> 1",
        "causal & strided(5)",
        "causal & ~strided(3)",
        "causal & (window(4, 0) | strided(8))",
        "window(2, 2) | dilated(3, 3, rate=7)",
        "~window(3, 3)",
        "chunk(8)",
        "causal & chunk(8)",
        "causal & (chunk(8) | sink(2))",
        "sink(4)",
        "globals(rows=(3,))",
    ],
)
def test_a_name_is_found_again(text):
    assert name(text) == str(ps.parse(text))


@pytest.mark.parametrize(
    ("text", "simpler"),
    [
        ("window(60, 60)", "dense"),
        ("window(60, 0)", "causal"),
        ("causal & window(47, 0)", "causal"),
        ("window(0, 0)", "causal & window(0, 0)"),
        ("rect(0:48, 0:5)", "sink(5)"),
        ("causal & (window(7, 0) | window(3, 0))", "causal & window(7, 0)"),
        ("causal - causal", "empty"),
        ("blocks((8, 8), ((0,), (1,), (2,), (3,), (4,), (5,)))", "chunk(8)"),
    ],
)
def test_the_simplest_name_is_taken(text, simpler):
    assert name(text) == simpler


def test_a2_the_offset_is_part_of_the_reading():
    """pytorch#108108: causal at the bottom right and at the top left are different patterns of one problem."""
    assert name("causal", ps.Problem(2, 5)) == "causal"
    assert name("causal & window(3, 0)", ps.Problem(3, 10)) == "causal & window(3, 0)"
    i, j = np.indices((3, 10))
    assert str(read_mask(j <= i).pattern) == "causal & causal >> -7"
    assert str(read_mask(j <= i, q_offset=0).pattern) == "causal"


def test_documents_come_with_the_problem():
    problem = ps.Problem(16, docs=(3, 5, 1, 0, 7))
    reading = read_mask(ps.dense_mask(ps.parse("causal & docs"), problem)[0])
    assert str(reading.pattern) == "causal & docs"
    assert reading.problem.docs == (3, 5, 1, 7)
    assert name("(causal & window(2, 0)).within(docs)", problem) == "causal & docs & window(2, 0)"


def test_heads_that_are_alike_are_read_once():
    mask = np.array([np.tri(8), np.tri(8), np.ones((8, 8)), np.tri(8)]).astype(bool)
    reading = read_mask(mask)
    assert str(reading.pattern) == "heads({range(0, 2): causal, 2: dense, 3: causal})"
    np.testing.assert_array_equal(again(reading), mask)


def test_heads_with_documents_of_their_own_share_what_they_can():
    docs = [ps.dense_mask(ps.docs, ps.Problem(9, docs=lengths))[0] for lengths in ((4, 5), (2, 7))]
    reading = read_mask(np.array(docs))
    assert reading.problem.docs == (4, 5)
    assert not reading.named
    np.testing.assert_array_equal(again(reading), np.array(docs))


@settings(max_examples=60, deadline=None)
@given(strategies.patterns(), strategies.problems(longest=40), strategies.blocks)
def test_any_mask_comes_back(pattern, problem, block):
    mask = ps.dense_mask(pattern, problem, block=block)
    reading = read_mask(mask, problem.q_offset)
    assert (reading.problem.q_len, reading.problem.kv_len, reading.problem.q_offset) == (
        problem.q_len,
        problem.kv_len,
        problem.q_offset,
    )
    np.testing.assert_array_equal(again(reading), mask)
    assert ps.parse(str(reading.pattern)) == reading.pattern


class TestBlockMasks:
    n = 12
    i, j = np.indices((n, n))

    def test_named(self):
        i, j = self.i, self.j
        for mask, text in (
            (i == j, "chunk(64)"),
            (i // 3 == j // 3, "chunk(192)"),
            (j <= i, "causal | chunk(64)"),
            ((j <= i) & (i - j < 3), "(causal | chunk(64)) & ~((causal | chunk(64)) >> -192)"),
            (j < 2, "sink(128)"),
            (i == 3, "globals(rows=(range(192, 256),))"),
        ):
            reading = read_block_mask(mask, 64)
            assert str(reading.pattern) == text
            assert reading.named
            assert reading.problem == ps.Problem(768)

    def test_a18_a_unidirectional_layout_holds_future_tokens(self):
        """DeepSpeed#519: 768 pairs are what the layout says; & causal is what was meant."""
        reading = read_block_mask(np.tri(2, dtype=int), 16)
        assert ps.lower(reading.pattern, reading.problem, block=16).pairs == 768
        assert ps.lower(ps.causal & reading.pattern, reading.problem, block=16).pairs == 528

    @pytest.mark.parametrize("seed", range(10))
    def test_a18_random_layouts_keep_their_sums(self, seed):
        """DeepSpeed#1020, #1513: nnz of the kernel's lists != the layout's sum."""
        mask = np.random.default_rng(seed).random((8, 16, 16)) < 0.3
        layout = ps.lower(*self.read(mask, 16), block=16)
        assert layout.tiles() == layout.tiles(ps.TileKind.FULL) == mask.sum()

    @staticmethod
    def read(mask, block, **lengths):
        reading = read_block_mask(mask, block, **lengths)
        return reading.pattern, reading.problem

    @settings(max_examples=60, deadline=None)
    @given(
        st.integers(1, 5).flatmap(
            lambda keys: st.lists(st.lists(st.booleans(), min_size=keys, max_size=keys), min_size=1, max_size=5)
        ),
        strategies.blocks,
        st.integers(0, 3),
        st.integers(-9, 20),
    )
    def test_any_block_mask_comes_back(self, mask, block, short, offset):
        q_len, kv_len = (
            max(len(side) * size - short, (len(side) - 1) * size + 1)
            for side, size in zip((mask, mask[0]), block, strict=True)
        )
        pattern, problem = self.read(mask, block, q_len=q_len, kv_len=kv_len, q_offset=offset)
        kinds = ps.lower(pattern, problem, block=block).tile_kinds()
        np.testing.assert_array_equal(kinds == ps.TileKind.FULL, np.array(mask))
        np.testing.assert_array_equal(kinds == ps.TileKind.EMPTY, ~np.array(mask))

    def test_lengths_that_make_other_blocks(self):
        with pytest.raises(
            ps.StudioError, match="q_len 100 and kv_len 48 make 7 x 3 blocks of 16 x 16, but the mask has 3 x 3"
        ):
            read_block_mask(np.ones((3, 3), int), 16, q_len=100)

    def test_a_million_tokens_of_blocks(self):
        begin = time.process_time()
        i, j = np.indices((1024, 1024))
        reading = read_block_mask((j <= i) & (i - j < 30), 1024)
        assert reading.named
        assert time.process_time() - begin < 20


class TestMaskMods:
    def test_flex_attention_examples(self):
        document = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
        for mask_mod, text in (
            (lambda b, h, q, k: q >= k, "causal"),
            (lambda b, h, q, k: (q >= k) & (q - k <= 3), "causal & window(3, 0)"),
            (lambda b, h, q, k: (k < 2) | (q >= k), "causal | sink(2)"),
            (lambda b, h, q, k: document[q] == document[k], "docs"),
            (lambda b, h, q, k: (q >= k) & (document[q] == document[k]), "causal & docs"),
            (lambda b, h, q, k: torch.ones((), dtype=torch.bool), "dense"),
            (lambda b, h, q, k: (q >= k) & ((h == 0) | (q - k < 2)), "heads({0: causal, 1: causal & window(1, 0)})"),
        ):
            reading = read_mask_mod(mask_mod, ps.Problem(10, heads=2))
            assert str(reading.pattern) == text

    def test_rows_count_from_0(self):
        assert str(read_mask_mod(lambda b, h, q, k: q >= k, ps.Problem(3, 10)).pattern) == "causal & causal >> -7"
        assert str(read_mask_mod(lambda b, h, q, k: q >= k, ps.Problem(3, 10, 0)).pattern) == "causal"

    def test_what_is_no_mask_mod(self):
        with pytest.raises(ps.StudioError, match=r"takes a function of \(batch, head, q_idx, kv_idx\), got 7"):
            read_mask_mod(7, ps.Problem(4))  # type: ignore[arg-type]
        with pytest.raises(ps.StudioError, match=r"must return booleans \(a mask, not a score\), got torch\.int64"):
            read_mask_mod(lambda b, h, q, k: q - k, ps.Problem(4))
        with pytest.raises(ps.StudioError, match=r"must return booleans .*, got bool"):
            read_mask_mod(lambda b, h, q, k: True, ps.Problem(4))
        with pytest.raises(ps.StudioError, match=r"mask_mod failed on q_idx \[4, 1\] and kv_idx \[1, 4\] \(.*\)"):
            read_mask_mod(lambda b, h, q, k: torch.zeros(2)[q] == 0, ps.Problem(4))
        with pytest.raises(ps.StudioError, match=r"a dense token mask of .* cells was asked for"):
            read_mask_mod(lambda b, h, q, k: q >= k, ps.Problem(2**20))


class TestInputs:
    def test_tensors_lists_and_ones_are_masks_too(self):
        for mask in (
            np.tri(5, dtype=int),
            torch.ones(5, 5).tril().bool(),
            np.tri(5, dtype=bool).tolist(),
            torch.ones(1, 1, 5, 5).tril() > 0,
        ):
            assert str(read_mask(mask).pattern) == "causal"

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            (np.tri(4), r"holds True for what is allowed .* got float64 values; an additive mask is read as mask == 0"),
            (np.tri(4, dtype=int) * 2, "got int64 values"),
            (
                np.ones(4, bool),
                r"has the shape \[q_len, kv_len\] or \[heads, q_len, kv_len\], got \[4\]; take one item",
            ),
            (np.ones((2, 1, 4, 4), bool), r"got \[2, 1, 4, 4\]; take one item"),
            (np.ones((0, 4, 4), bool), r"got \[0, 4, 4\]; take one item"),
        ],
    )
    def test_what_is_no_mask(self, mask, message):
        with pytest.raises(ps.StudioError, match=message):
            read_mask(mask)

    def test_a_list_too_long_is_refused_before_it_is_made(self):
        mask = np.random.default_rng(0).random((2048, 2304)) < 0.5
        with pytest.raises(
            ps.StudioError, match=r"listing it takes 1,18.,... stretches of blocks, more than the 1,048,576"
        ):
            read_mask(mask)

    def test_a_large_mask_is_read_in_seconds(self):
        i, j = np.indices((3000, 3000), np.int32)
        begin = time.process_time()
        reading = read_mask((j <= i) & ((i - j < 512) | (j < 64)))
        assert str(reading.pattern) == "causal & (window(511, 0) | sink(64))"
        assert time.process_time() - begin < 20
