"""The compatibility matrix: complete, and what is kept of it is today's, by rows and by cells across all of it."""

from __future__ import annotations

import doctest

import pytest

import gallery.matrix
import pattern_studio as ps
from gallery.matrix import HEADS, LAYER, SIZED, TOKENS, Cell, cell, kept, row, targets, text_of
from pattern_studio.exporters import Fidelity, check
from pattern_studio.presets import PRESETS

STALE = "run `python -m gallery.matrix` and look at the change"


def shown(one: Cell) -> str:
    return f"no: {one.fidelity.reason}" if one.fidelity.kind == "unsupported" else str(one)


KEPT = kept()


def test_every_preset_and_every_target_is_there():
    assert list(KEPT) == list(PRESETS), STALE
    assert all(list(cells) == targets() for cells in KEPT.values()), STALE
    assert set(SIZED) <= set(PRESETS)
    assert doctest.testmod(gallery.matrix).failed == 0


@pytest.mark.parametrize("name", ["mistral", "llama4", "sliding_tile", "deepspeed_fixed"])
def test_kept_rows_are_todays(name):
    assert KEPT[name] == {to: shown(one) for to, one in row(name).items()}, STALE


@pytest.mark.parametrize(("n", "name"), list(enumerate(PRESETS)))
def test_a_cell_of_every_row_is_todays(n, name):
    cheap = [to for to in targets() if to not in ("magi_attention", "flashinfer_variable", "huggingface")]
    to = cheap[5 * n % len(cheap)]
    assert KEPT[name][to] == shown(cell(ps.parse(text_of(name)), to)), STALE


def test_the_best_block_is_taken():
    pattern = ps.parse(text_of("bigbird"))
    tried = {block: check(pattern, ps.Problem(TOKENS, heads=HEADS), block, "deepspeed") for block in (128, 64)}
    assert tried[128].kind == "cover"
    assert (cell(pattern, "deepspeed").fidelity, cell(pattern, "deepspeed").block) == (tried[64], 64)


@pytest.mark.parametrize(
    ("fidelity", "words"),
    [
        (Fidelity("exact"), "exact"),
        (Fidelity("cover", 5), "cover +2.5 %"),
        (Fidelity("cover", 2400), "cover +1,200 %"),
        (Fidelity("lossy", 3), "lossy -1.5 %"),
        (Fidelity("unsupported", reason="why"), "no"),
    ],
)
def test_cells_in_words(fidelity, words):
    assert str(Cell(fidelity, 128, 200)) == words


def test_every_preset_has_pairs_at_the_size_of_the_matrix():
    for name in PRESETS:
        layout = ps.lower(ps.parse(text_of(name)), ps.Problem(TOKENS, heads=HEADS), block=128, layer=LAYER)
        assert layout.empty_rows == 0 or name == "longnet_heads"  # whose heads skip rows, each others
        assert 0 < layout.pairs < 0.8 * HEADS * TOKENS**2, "a size at which it is still sparse"
