"""Faults reported in public on other software that concern the language and lowering, with the right values.

Each test names its case and source. Those that concern the attention core, exporters and the app
stand in their folders.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.lowering import from_mask

FIRST_ROW = [9, 13, 15]
LAST_ROW = [1, 7, 10]


def mask(text: str, q_len: int, kv_len: int | None = None, **problem) -> np.ndarray:
    fields = ps.Problem(q_len, q_len if kv_len is None else kv_len, **problem)
    pattern = ps.parse(text)
    dense = ps.dense_mask(pattern, fields)[0]
    np.testing.assert_array_equal(ps.lower(pattern, fields, block=(4, 2)).expand(), dense)
    return dense


def keys(row: np.ndarray) -> list[int]:
    return np.flatnonzero(row).tolist()


class TestA1SlidingWindowCountsTheQueryItself:
    """transformers#29623, #39408: the same W means W keys in one backend, W + 1 in another."""

    def test_four_keys(self):
        found = mask("causal & window(3, 0)", 8)
        assert found.sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]
        assert found.sum() == 26

    def test_one_key_is_the_identity_and_a_wide_window_is_causal(self):
        np.testing.assert_array_equal(mask("causal & window(0, 0)", 8), np.eye(8, dtype=bool))
        for width in (8, 100):
            assert mask(f"causal & window({width - 1}, 0)", 8).sum() == 36

    @given(st.integers(1, 20), st.integers(0, 30))
    def test_any_width(self, width, n):
        i, j = np.indices((n, n))
        np.testing.assert_array_equal(mask(f"window({width - 1}, 0)", n), (i - j >= 0) & (i - j < width))


class TestA2BottomRightAlignment:
    """pytorch#108108, transformers#41228: causal or window misaligned where q_len != kv_len."""

    def test_more_keys_than_queries(self):
        found = mask("causal", 2, 5)
        assert [keys(r) for r in found] == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]

    def test_more_queries_than_keys(self):
        assert [keys(r) for r in mask("causal", 5, 2)] == [[], [], [], [0], [0, 1]]

    def test_windows_follow(self):
        found = mask("causal & window(3, 0)", 3, 10)
        assert [keys(r) for r in found] == [[4, 5, 6, 7], [5, 6, 7, 8], [6, 7, 8, 9]]
        assert keys(mask("causal & window(3, 0)", 1, 10)[0]) == [6, 7, 8, 9]

    def test_an_offset_that_is_given_is_kept(self):
        assert keys(mask("causal", 2, 5, q_offset=0)[1]) == [0, 1]


class TestA3DilationBeyondTheLength:
    """Neighborhood-Attention-Transformer#106, NATTEN#41: dilation x kernel beyond the length fails or wraps."""

    def test_taps_outside_are_cut_off(self):
        np.testing.assert_array_equal(mask("dilated(2, 2, rate=16)", 10), np.eye(10, dtype=bool))

    def test_causal_taps(self):
        found = mask("causal & dilated(3, 3, rate=3)", 10)
        for i in range(10):
            assert keys(found[i]) == sorted(k for k in (i, i - 3, i - 6, i - 9) if k >= 0)
        assert found.sum() == 22


class TestA4RandomIsBitIdentical:
    """transformers#23055, #18656: random blocks redrawn at every call."""

    TEXT = "random(3, unit=64, seed=0)"

    def layout(self, text: str = TEXT) -> ps.BlockLayout:
        return ps.lower(ps.parse(text), q_len=1024, block=64)

    def test_global_generators_neither_matter_nor_move(self):
        np.random.seed(1)  # noqa: NPY002 - the global generator is what the case is about
        torch.manual_seed(1)
        first, states = self.layout(), (np.random.get_state()[1].copy(), torch.get_rng_state())  # noqa: NPY002
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), states[1])
        np.random.seed(2)  # noqa: NPY002
        assert self.layout() == first

    def test_a_fresh_process_draws_the_same(self):
        script = f"import pattern_studio as ps; l = ps.lower(ps.parse({self.TEXT!r}), q_len=1024, block=64)\n"
        script += "print(','.join(map(str, l.tile_kinds().ravel())))"
        told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        assert told.strip() == ",".join(map(str, self.layout().tile_kinds().ravel()))

    def test_the_draw_of_this_version_is_fixed(self):
        # Written down once: a change here changes every pattern that users have saved.
        assert keys(self.layout().tile_kinds()[0]) == FIRST_ROW
        assert keys(self.layout().tile_kinds()[15]) == LAST_ROW

    def test_rows_have_distinct_blocks_and_seeds_differ(self):
        kinds = self.layout().tile_kinds()
        assert ((kinds == ps.TileKind.FULL).sum(1) == 3).all()
        assert self.layout("random(3, unit=64, seed=1)") != self.layout()
        few = ps.lower(ps.random(9, unit=64), q_len=256, block=64)
        assert few.tiles() == 16


class TestA5RaggedLastBlock:
    """pytorch#159247, flashinfer#5090: a partial last key block taken as full."""

    def test_tiles(self):
        kinds = ps.lower(ps.causal, q_len=130, block=64).tile_kinds()
        active = kinds != ps.TileKind.EMPTY
        np.testing.assert_array_equal(active, np.tri(3, dtype=bool))
        full = [(1, 0), (2, 0), (2, 1)]
        assert [tuple(x) for x in np.argwhere(kinds == ps.TileKind.FULL)] == full
        assert ps.lower(ps.dense, q_len=130, block=64).pairs == 130 * 130


def test_a6_lengths_that_no_block_divides():
    """attention-gym#71: q_len != kv_len with a block that divides neither fails."""
    problem = ps.Problem(10, 20, q_offset=0)
    i, j = np.indices((10, 20))
    rule = j // 2 <= i
    layout = from_mask(rule[None], problem, 8)
    np.testing.assert_array_equal(layout.tile_kinds() > 0, [[1, 1, 0], [1, 1, 1]])
    assert [tuple(x) for x in np.argwhere(layout.tile_kinds() == ps.TileKind.FULL)] == [(1, 0), (1, 1)]
    # The same rule in the language: keys 2 i + 1 and before, as explicit rows.
    same = ps.blocks((1, 1), tuple((range(0, 2 * i + 2),) for i in range(10)))
    lowered = ps.lower(same, problem, block=8)
    assert lowered == layout
    assert lowered.pairs == 110
    np.testing.assert_array_equal(lowered.expand() & rule, lowered.expand())


def test_a7_densities_of_documents():
    """attention-gym#93: a negative sparsity shown. Densities lie in [0, 1] and say what they count."""
    pattern, docs = ps.causal & ps.docs, (10, 10, 20, 20, 20, 20)
    for block, active, total in ((128, 1, 1), (32, 7, 16), (16, 12, 49)):
        layout = ps.lower(pattern, q_len=100, docs=docs, block=block)
        assert layout.pairs == 950
        assert (layout.tiles(), layout.q_blocks * layout.kv_blocks) == (active, total)


def test_a8_packed_documents():
    """nanoVLM#204: packed documents attend across boundaries. A zero-length document is accepted."""
    found = mask("(causal & docs)", 16, docs=(3, 5, 1, 0, 7))
    assert found.sum() == 50
    starts = np.repeat([0, 3, 8, 9], [3, 5, 1, 7])
    i, j = np.indices((16, 16))
    np.testing.assert_array_equal(found, (starts[i] == starts[j]) & (j <= i))


class TestA10LayoutsKeepTheirLengths:
    """pytorch#136232, #141625, attention-gym#122: a mask made for another length gives wrong values."""

    def test_position_absolute_patterns_crop_to_what_a_rebuild_gives(self):
        pattern = ps.causal & (ps.window(99, 0) | ps.sink(4))
        whole = ps.lower(pattern, q_len=1024, block=128).expand()
        rebuilt = ps.lower(pattern, q_len=500, kv_len=1024, q_offset=0, block=128).expand()
        np.testing.assert_array_equal(whole[:500], rebuilt)

    def test_rows_outside_are_refused(self):
        layout = ps.lower(ps.causal, q_len=8, block=4)
        with pytest.raises(ps.StudioError, match="head must lie between 0 and 0"):
            layout.expand(1)
        with pytest.raises(ps.StudioError, match="rows 0 to 9 of 8"):
            layout.expand(0, 0, 9)


class TestA20LongSequences:
    """pytorch#134756: a 96K mask runs out of memory."""

    TEXT = "causal & (window(511, 0) | sink(64))"

    def test_counts(self):
        tracemalloc.start()
        layout = ps.lower(ps.parse(self.TEXT), q_len=96_000, block=128)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (layout.q_blocks, layout.kv_blocks) == (750, 750)
        assert (layout.tiles(), layout.tiles(ps.TileKind.FULL)) == (4485, 2244)
        assert peak < 200e6

    def test_a_shorter_one_by_brute_force(self):
        n = 12_800
        layout = ps.lower(ps.parse(self.TEXT), q_len=n, block=128)
        assert (layout.tiles(), layout.tiles(ps.TileKind.FULL)) == (585, 294)
        keys = np.arange(n)
        for row in range(0, n, 128):
            distance = np.arange(row, row + 128)[:, None] - keys
            brute = (distance >= 0) & ((distance <= 511) | (keys < 64))
            np.testing.assert_array_equal(layout.expand(0, row, row + 128), brute)
