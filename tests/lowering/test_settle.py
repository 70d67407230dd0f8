"""Settling undecided tiles, by pairs and by rows; batches; what is refused; what composites cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.lowering import analytic, settle
from tests import strategies


@settings(max_examples=120)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_rows_and_pairs_agree(pattern, problem, block):
    found = []
    for cost in (0, 10**9):  # every tile by its rows, every tile by its pairs
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(settle, "RUN_COST", cost)
            found.append(ps.lower(pattern, problem, block=block))
    assert found[0] == found[1]


@settings(max_examples=60)
@given(strategies.patterns(), strategies.problems(), strategies.blocks)
def test_batches_leave_no_seams(pattern, problem, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analytic, "SAMPLE", 2)
        patch.setattr(analytic, "BATCH_RUNS", 3)
        patch.setattr(settle, "CHUNK_RUNS", 3)
        patch.setattr(settle, "CHUNK_PAIRS", 5)
        patch.setattr(settle, "RUN_COST", 1)
        small = ps.lower(pattern, problem, block=block).validate()
    assert small == ps.lower(pattern, problem, block=block)


def test_a_layout_that_is_far_too_large_is_refused_at_once():
    tracemalloc.start()
    with pytest.raises(ps.StudioError, match="key runs at this block size, more than the 134,217,728"):
        ps.lower(ps.strided(64), q_len=2**22, block=(1, 1))
    assert tracemalloc.get_traced_memory()[1] < 2**30
    tracemalloc.stop()


def test_a_layout_that_is_a_little_too_large_is_refused_on_the_way(monkeypatch):
    monkeypatch.setattr(analytic, "MAX_RUNS", 100)
    with pytest.raises(ps.StudioError, match=r"this pattern has about [0-9,]+ key runs"):
        ps.lower(ps.random(8), q_len=128, block=(8, 1))


N = 2**17
GRID = "grid(t=8, h=128, w=128)"
COSTLY = {
    "random": ("random(8)", (128, 1)),
    "random under causal": ("causal & (window(255, 0) | random(8))", (128, 1)),
    "not random": ("causal - random(4, unit=128)", 128),
    "random transposed": ("random(8).T", (128, 1)),
    "dilated": ("causal & dilated(511, 0, rate=7) | sink(4)", 128),
    "not dilated": ("window(2047, 2047) - dilated(63, 63, rate=64)", 128),
    "strided": ("causal & (strided(1024) | window(127, 0))", 128),
    "neighborhood": (f"neighborhood({GRID}, kernel=(5, 9, 9))", 128),
    "neighborhood transposed": (f"neighborhood({GRID}, kernel=(5, 9, 9)).T & causal", 128),
    "neighborhood dilated": (f"neighborhood({GRID}, kernel=(2, 9, 9), dilation=(2, 3, 3))", 128),
    "heads": ("heads({0: causal & strided(512), 1: random(4), 2: ~window(9, 9)})", (128, 1)),
    "longnet": ("longnet((2048, 8192, 32768), (1, 4, 16))", 128),
    "slash": ("causal & (slash(range(0, 8192, 512)) | vertical(range(0, 4096, 64)))", 128),
    "hierarchical": ("causal & hierarchical(((128, 1), (1024, 8), (8192, 64)))", 128),
    "expander": ("expander(8) | window(64, 64)", (128, 1)),
    "documents": ("(causal & (sink(4) | window(511, 0))).within(docs)", 128),
}


@pytest.mark.parametrize("name", COSTLY)
def test_costs_stay_far_below_enumeration(name):
    """131,072 tokens: a token mask would take 17 GB. A quarter of a million pairs are checked."""
    text, block = COSTLY[name]
    cuts = np.sort(np.random.default_rng(1).choice(np.arange(1, N), 1249, replace=False))
    docs = tuple(np.diff([0, *cuts.tolist(), N]).tolist())
    heads = 3 if name == "heads" else 1
    pattern = ps.parse(text)
    tracemalloc.start()
    layout = ps.lower(pattern, q_len=N, block=block, docs=docs, heads=heads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 600e6
    scope = ps.Scope(N, ps.Problem(N, docs=docs).doc_ends)
    for head in range(heads):
        for row in (0, 70_001, N - 1):
            want = pattern.resolve(head).allows(np.array([[row]]), np.arange(N)[None], scope)
            np.testing.assert_array_equal(layout.expand(head, row, row + 1), want)
