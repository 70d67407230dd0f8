"""flex_attention: the generated text run with torch alone, its lists and mask_mod, and torch's attention under it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention.flex_attention import flex_attention

import pattern_studio as ps
from pattern_studio.exporters import check, export, to_block_mask
from tests.exporters.flex import assert_formatted, attention, dense, expanded, run_source
from tests.exporters.trees import exportable
from tests.strategies import problems

GOLDEN = Path(__file__).parent / "golden"
README = "causal & (window(63, 0) | sink(4))"

CASES = {
    "readme": (README, dict(q_len=300), 128),
    "ragged ends": ("causal & (window(20, 0) | sink(4))", dict(q_len=100, heads=2), 16),
    "shorter queries (A2)": ("causal & window(3, 0)", dict(q_len=3, kv_len=10), 16),
    "more queries than keys (A2)": ("causal", dict(q_len=5, kv_len=2), 16),
    "offset": ("causal & dilated(3, 2, rate=5)", dict(q_len=40, kv_len=70, q_offset=-9), (16, 32)),
    "per head": (
        "heads({0: causal, 1: window(9, 9) | globals(rows=(3,), cols=(5,)), 2: empty})",
        dict(q_len=70, heads=3),
        16,
    ),
    "documents": ("causal & docs", dict(q_len=48, docs=(3, 5, 1, 0, 39)), 16),
    "within documents": ("(causal & (window(7, 0) | sink(2))).within(docs)", dict(q_len=90, docs=(30, 1, 59)), 32),
    "random": ("causal & (random(5, seed=1) | window(4, 0))", dict(q_len=64, heads=2), 32),
    "random per head": ("heads({0: random(2, unit=8), 1: dense})", dict(q_len=50, kv_len=80, heads=2), 16),
    "many globals": ("globals(rows=(1, 5, 9, 30, 40), cols=(0, 2, 4, 6, 8, 40))", dict(q_len=64), 16),
    "blocks": ("blocks((24, 8), ((0, 3, range(5, 7)), (1,), (2, 9)))", dict(q_len=64, kv_len=64), 16),
    "transposed and shifted": ("(strided(7) ^ chunk(10)).T >> 3", dict(q_len=64, kv_len=50), 16),
    "all pairs": ("dense", dict(q_len=40, kv_len=33), 16),
}


@pytest.mark.parametrize("name", CASES)
def test_torch_attends_as_the_dense_reference(name):
    text, lengths, block = CASES[name]
    pattern, problem = ps.parse(text), ps.Problem(**lengths)
    wanted = ps.dense_mask(pattern, problem, block=block)
    module = run_source(export(pattern, problem, block).content)
    for mask in (module.block_mask("cpu"), to_block_mask(ps.lower(pattern, problem, block=block))):
        np.testing.assert_array_equal(expanded(mask, problem.heads), wanted)
        inputs, found = attention(mask, problem.heads, compiled=name == "readme")
        for got, right in zip(found, dense(*inputs, wanted), strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(exportable, problems())
def test_generated_text_equals_the_predicate(pattern, problem):
    if not problem.q_len or not problem.kv_len:
        assert check(pattern, problem, 16).kind == "unsupported"
        return
    module = run_source(export(pattern, problem, (16, 32)).content)
    mask = ps.dense_mask(pattern, problem, block=(16, 32))
    np.testing.assert_array_equal(expanded(module.block_mask("cpu"), problem.heads), mask)


@settings(max_examples=40, deadline=None)
@given(exportable, problems())
def test_to_block_mask_equals_the_predicate(pattern, problem):
    if problem.q_len and problem.kv_len:
        layout = ps.lower(pattern, problem, block=16)
        mask = ps.dense_mask(pattern, problem, block=16)
        np.testing.assert_array_equal(expanded(to_block_mask(layout), problem.heads), mask)


def test_the_text_of_the_readme_pattern():
    text = export(ps.parse(README), ps.Problem(4096), 128).content
    assert text == (GOLDEN / "flex_attention.py.txt").read_text()


def test_text_stays_short_where_the_pattern_is_regular():
    short = export(ps.parse(README), ps.Problem(4096), 128).content
    long = export(ps.parse(README), ps.Problem(2**20), 128).content
    assert len(long) < len(short) + 100


def test_a_long_mask_is_made_without_its_pairs():
    problem = ps.Problem(2**17)  # 1.7e10 pairs, 1.0e6 tiles
    mask = run_source(export(ps.parse("causal & window(255, 0)"), problem, 128).content).block_mask("cpu")
    layout = ps.lower(ps.parse("causal & window(255, 0)"), problem, block=128)
    assert int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum()) == layout.tiles()


def test_generated_text_is_formatted():
    assert_formatted(*(export(ps.parse(t), ps.Problem(**n), block).content for t, n, block in CASES.values()))


def test_blocks_that_do_not_fit_are_lowered_again_and_said():
    pattern, problem = ps.parse("causal & window(63, 0)"), ps.Problem(256, heads=2)
    file = export(pattern, problem, (64, 8))
    assert file.notes[0] == (
        "lowered at 64 x 128, not 64 x 8: FlexAttention takes blocks of 16, 32, 64, 128 or a multiple of 128 that "
        "divides the length"
    )
    assert file.notes[1].startswith("a block below 128 needs kernel_options")
    mask = run_source(file.content).block_mask("cpu")
    np.testing.assert_array_equal(expanded(mask, 2), ps.dense_mask(pattern, problem))
    assert export(pattern, ps.Problem(512), 256).notes == ()
    assert export(pattern, ps.Problem(384), 256).notes[0].startswith("lowered at 128 x 128, not 256 x 256")


def test_a_pattern_that_means_another_at_another_block_is_refused():
    pattern = ps.causal & ps.random(3, unit=ps.block)
    with pytest.raises(ps.StudioError, match=r"blocks of 128 x 128, and with unit=block .* ask for block=\(128, 128\)"):
        export(pattern, ps.Problem(256), 8)
    assert check(pattern, ps.Problem(256), 128).kind == "exact"


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (ps.lower(ps.causal, q_len=256, block=(128, 8)), "got block_k 8; lower the pattern again, with block=128"),
        (ps.lower(ps.causal, q_len=384, block=256), "a multiple of 128 that divides the length 384, got block_q 256"),
        (ps.lower(ps.causal, q_len=0, block=128), "at least one query and one key, got q_len 0 and kv_len 0"),
        (ps.lower(ps.window(3, 0), q_len=2**22, block=16), "here 68,719,476,736, and at most 268,435,456 are made"),
    ],
)
def test_to_block_mask_says_what_does_not_fit(layout, message):
    with pytest.raises(ps.StudioError, match=message):
        to_block_mask(layout)


def test_a_mask_for_another_length_is_refused_by_torch():  # A10
    mask = to_block_mask(ps.lower(ps.causal, q_len=1024, block=128))
    q, k = torch.zeros(1, 1, 500, 8), torch.zeros(1, 1, 1024, 8)
    with pytest.raises(ValueError, match=r"1024, 1024.*q_len=500 and kv_len=1024"):
        flex_attention(q, k, k, block_mask=mask)


def test_layers_are_chosen():
    pattern = ps.layers({0: ps.causal, 1: ps.window(2, 0)})
    module = run_source(export(pattern, ps.Problem(40), 16, layer=1).content)
    np.testing.assert_array_equal(expanded(module.block_mask("cpu"), 1), ps.dense_mask(ps.window(2, 0), ps.Problem(40)))
    with pytest.raises(ps.StudioError, match="differs by layer"):
        export(pattern, ps.Problem(40), 16)
