"""The guide's names do what the guide's examples ask, by hand."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import pattern_studio as ps
from pattern_studio.sparse_pattern_utils import PatternQualityAnalyzer, PatternVisualizer, pattern_statistics
from tests import strategies  # noqa: F401 - its settings

measure = PatternQualityAnalyzer().analyze_pattern_quality


def test_the_guides_example():
    pattern = torch.eye(4, dtype=torch.bool)[None]  # blocks of 8 tokens
    scores = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(0))
    metrics = measure(sparse_pattern=pattern, reference_attention=scores.softmax(-1))
    told = (f"{metrics.coverage_ratio:.2%} {metrics.locality_score:.2%} {metrics.efficiency_score:.2f}x "
            f"{metrics.approximation_error:.4f}")  # fmt: skip
    assert told.count(" ") == 3
    mask = np.kron(np.eye(4), np.ones((8, 8)))
    dense = scores.double().softmax(-1).numpy()
    own = dense * mask
    assert metrics.coverage_ratio == pytest.approx(own.sum(-1).mean(), rel=1e-5)
    error = np.linalg.norm(dense - own / own.sum(-1, keepdims=True)) / np.linalg.norm(dense)
    assert metrics.approximation_error == pytest.approx(error, rel=1e-5)


def test_without_a_reference_nothing_is_made_up():
    found = measure(np.tri(3))
    assert (found.coverage_ratio, found.efficiency_score, found.approximation_error) == (None, None, None)
    assert (found.locality_score, found.density) == (5 / 6, 6 / 9)
    assert measure(np.zeros((2, 2))).locality_score is None


def test_the_best_choice_is_fully_efficient_and_an_empty_one_loses_all():
    attention = [[0.9, 0.1], [0.2, 0.8]]
    assert measure(np.eye(2), attention).efficiency_score == 1
    # The two worst cells of four: 0.3 of 1.7.
    assert measure(1 - np.eye(2), attention).efficiency_score == pytest.approx(0.3 / 1.7)
    empty = measure(np.zeros((2, 2)), attention)
    assert (empty.coverage_ratio, empty.approximation_error, empty.efficiency_score) == (0, 1, None)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**31))
def test_everything_stays_within_bounds(cells, side, heads, seed):
    rng = np.random.default_rng(seed)
    pattern = rng.random((heads, cells, cells)) < 0.5
    weights = rng.dirichlet(np.ones(cells * side), (2, heads, cells * side))
    found = measure(pattern, weights)
    assert 0 <= found.coverage_ratio <= 1 + 1e-9
    assert found.efficiency_score is None or 0 <= found.efficiency_score <= 1
    assert measure(np.ones_like(pattern), weights).approximation_error == pytest.approx(0, abs=1e-12)


def test_statistics_of_a_layout_are_of_tokens():
    stats = pattern_statistics(ps.lower(ps.causal, q_len=4, heads=2, block=2))
    assert stats["cells"] == 20
    assert stats["density"] == 10 / 16
    assert (stats["min_row_density"], stats["max_row_density"]) == (1 / 4, 1)
    assert (stats["diagonal_density"], stats["empty_rows"], stats["balance"]) == (1, 0, 4 / 2.5)
    assert pattern_statistics(np.zeros((2, 2)))["balance"] is None


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_pictures_carry_their_title(suffix, tmp_path):
    path = PatternVisualizer().visualize_pattern(torch.eye(3), title="Ten < twenty", save_path=tmp_path / f"p{suffix}")
    if suffix == ".png":
        with Image.open(path) as picture:
            picture.load()
            assert picture.info["Title"] == "Ten < twenty"
    elif suffix == ".svg":
        assert ElementTree.parse(path).getroot()[0].text == "Ten < twenty"
    else:
        assert "<h1>Ten &lt; twenty</h1>" in path.read_text()


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"expected a pattern as bool .*, got int64 \[1, 1, 1\]", lambda: measure([[2]])),
        (r"got float64 \[3\]; lower a Pattern with lower", lambda: pattern_statistics(np.zeros(3))),
        (r"expected attention weights \[batch, heads, n, n\] .* got \[1, 1, 3, 3\]",
         lambda: measure(np.eye(2), np.full((3, 3), 1 / 3))),
        ("whose rows are at least 0 and add up to 1", lambda: measure(np.eye(2), np.eye(2) * np.nan)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()
