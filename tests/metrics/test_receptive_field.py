"""Patterns composed over layers, by hand and against products of boolean matrices."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.metrics.receptive_field import receptive_field
from tests import strategies


def test_a_window_grows_by_itself_each_layer():
    field = receptive_field(ps.causal & ps.window(2, 0), ps.Problem(20), layers=10)
    assert field.hops == 10  # query 19 is reached by key 19 - 2 L
    assert (field.causal, field.exact, field.spectral_gap) == (True, True, None)
    assert [depth.min_tokens for depth in field.depths] == [1] * 10
    assert field.depths[0].mean_tokens == (1 + 2 + 18 * 3) / 20


def test_order_of_different_layers_matters():
    # Query 0 reads all and then everyone reads query 0; the other way round what query 0 learns is passed to nobody.
    problem = ps.Problem(6)
    row, column = ps.globals(rows=(0,)), ps.globals(cols=(0,))
    assert receptive_field([row, column], problem).hops == 2
    assert receptive_field([column, row], problem).hops is None


def test_without_the_residual_path_a_layer_forgets():
    assert receptive_field(ps.sink(1), ps.Problem(4), layers=2, residual=False).depths[1].mean_tokens == 1
    assert receptive_field(ps.empty, ps.Problem(4), residual=False).depths[0].mean_tokens == 0
    assert receptive_field(ps.empty, ps.Problem(4)).depths[0].mean_tokens == 1


def test_larger_blocks_bound_from_above_and_say_so():
    problem = ps.Problem(100)
    window = ps.causal & ps.window(9, 0)
    tokens, blocks = (receptive_field(window, problem, layers=4, block=b) for b in (1, 16))
    assert (tokens.exact, blocks.exact) == (True, False)
    assert all(b.mean_tokens >= t.mean_tokens for t, b in zip(tokens.depths, blocks.depths, strict=True))
    assert receptive_field(ps.chunk(16), problem, layers=2, block=16).exact
    assert not receptive_field(ps.chunk(16) & ~ps.chunk(16), problem, block=16).exact  # only the residual is there


def test_spectral_gap_of_a_ring_by_hand():
    # Windows of one on each side of a path of 3: degrees 2, 3, 2. Eigenvalues 1, 1/2 and -1/6.
    assert receptive_field(ps.window(1, 1), ps.Problem(3)).spectral_gap == pytest.approx(0.5)


def test_eight_thousand_blocks():
    field = receptive_field(ps.parse("causal & (window(1023, 0) | strided(256))"), ps.Problem(8192), layers=3)
    assert field.hops is not None
    field = receptive_field(ps.parse("window(511, 511) | globals(rows=(0,), cols=(0,))"), ps.Problem(2**20),
                            layers=2, block=128)  # fmt: skip
    assert (field.hops, field.exact) == (2, False)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(strategies.plain, min_size=1, max_size=3), st.integers(1, 70), st.integers(1, 9), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_equals_boolean_products(patterns, tokens, block, residual, headed):
    if headed:
        patterns = [ps.heads({0: pattern, 1: ps.sink(3)}) for pattern in patterns]
    problem = ps.Problem(tokens, heads=1 + headed)
    with mock.patch("pattern_studio.metrics.receptive_field.WORDS", 8):
        field = receptive_field(patterns, problem, block=block, residual=residual)
    blocks = -(-tokens // block)
    known, causal = np.eye(blocks, dtype=int), True
    for pattern, depth in zip(patterns, field.depths, strict=True):
        mask = ps.dense_mask(pattern, problem, block=block).any(0)
        padded = np.pad(mask, (0, -tokens % block)).reshape(blocks, block, blocks, block).any((1, 3))
        causal &= not np.triu(padded, 1).any()
        known = ((padded.astype(int) + (np.eye(blocks, dtype=int) if residual else 0)) @ known > 0).astype(int)
        whole = known.repeat(block, 0).repeat(block, 1)[:tokens, :tokens]
        assert depth.mean_tokens == pytest.approx(whole.sum(1).mean())
        assert depth.min_tokens == whole.sum(1).min()
    assert field.causal == causal
    triangle = np.tril(np.ones((blocks, blocks), int)) if causal else np.ones((blocks, blocks), int)
    assert field.depths[-1].coverage == pytest.approx(
        whole.sum() / triangle.repeat(block, 0).repeat(block, 1)[:tokens, :tokens].sum()
    )


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("expected self-attention over at least one token, got q_len 2, kv_len 3",
         lambda: receptive_field(ps.causal, ps.Problem(2, 3))),
        ("expected one pattern for each of 3 layers, got 1; list them",
         lambda: receptive_field([ps.causal], ps.Problem(4), layers=3)),
        ("expected at most 65,536 blocks, got 65,537; use a larger block than 1",
         lambda: receptive_field(ps.causal, ps.Problem(65537))),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()
