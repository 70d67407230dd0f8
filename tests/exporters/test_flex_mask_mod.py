"""flex_mask_mod: the generated mask_mod against the predicate, by itself and through torch's create_block_mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention.flex_attention import create_block_mask, create_mask

import pattern_studio as ps
from pattern_studio.exporters import export
from tests.exporters.flex import assert_formatted, run_source
from tests.exporters.trees import exportable
from tests.strategies import problems

GOLDEN = Path(__file__).parent / "golden"


def mask_of(mask_mod, problem: ps.Problem) -> np.ndarray:
    """The mask_mod on broadcast indices, bool [heads, q_len, kv_len]."""
    shape = (problem.heads, problem.q_len, problem.kv_len)
    head, row, key = (torch.arange(n).view([-1 if m == k else 1 for m in range(3)]) for k, n in enumerate(shape))
    return mask_mod(torch.zeros(1, 1, 1, dtype=torch.int64), head, row, key).expand(shape).numpy()


@settings(max_examples=40, deadline=None)
@given(exportable, problems())
def test_mask_mod_equals_the_predicate(pattern, problem):
    if problem.q_len and problem.kv_len:
        module = run_source(export(pattern, problem, (8, 3), to="flex_mask_mod").content)
        wanted = ps.dense_mask(pattern, problem, block=(8, 3))
        np.testing.assert_array_equal(mask_of(module.mask_mod, problem), wanted)


@pytest.mark.parametrize(
    "text", ["heads({0: causal, 1: window(2, 2) | sink(1)})", "causal & random(3)", "(sink(3) | causal).within(docs)"]
)
def test_torch_builds_its_block_mask_from_it(text):
    pattern, problem = ps.parse(text), ps.Problem(40, heads=2, docs=(15, 25))
    mask_mod = run_source(export(pattern, problem, to="flex_mask_mod").content).mask_mod
    wanted = ps.dense_mask(pattern, problem)
    np.testing.assert_array_equal(create_mask(mask_mod, None, 2, 40, 40, "cpu")[0].numpy(), wanted)
    built = create_block_mask(mask_mod, None, 2, 40, 40, "cpu", BLOCK_SIZE=16)
    tiles = np.pad(wanted, ((0, 0), (0, 8), (0, 8))).reshape(2, 3, 16, 3, 16).any((2, 4))
    np.testing.assert_array_equal(built.to_dense()[0].numpy().astype(bool), tiles)


def test_the_text_of_the_readme_pattern():
    text = export(ps.parse("causal & (window(63, 0) | sink(4))"), ps.Problem(4096), to="flex_mask_mod").content
    assert text == (GOLDEN / "flex_mask_mod.py.txt").read_text()
    assert "import" not in text.split('"""')[2]  # without tables it needs not even torch


def test_generated_text_is_formatted():
    texts = ("causal", "causal & random(3)", "(sink(3) | causal).within(docs) & globals(cols=(1, 3, 5, 7, 9))")
    problem = ps.Problem(40, docs=(15, 25))
    assert_formatted(*(export(ps.parse(text), problem, to="flex_mask_mod").content for text in texts))


def test_heads_are_told_apart_without_branches():
    pattern = ps.heads({head: ps.window(head, 0) for head in range(12)})
    text = export(pattern, ps.Problem(64, heads=12), 16, to="flex_mask_mod").content
    assert " if " not in text.split("def mask_mod(")[1].split("return")[0]
    np.testing.assert_array_equal(
        mask_of(run_source(text).mask_mod, ps.Problem(64, heads=12)), ps.dense_mask(pattern, ps.Problem(64, heads=12))
    )


def test_window_counts_the_query_itself():  # A1: Hugging Face's W = 4 is window(3, 0)
    for width, pairs in ((4, 26), (1, 8), (8, 36), (100, 36)):
        pattern = ps.causal & ps.window(width - 1, 0)
        module = run_source(export(pattern, ps.Problem(8), to="flex_mask_mod").content)
        assert mask_of(module.mask_mod, ps.Problem(8)).sum() == pairs
