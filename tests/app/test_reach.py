"""Reach: arrivals against products of boolean matrices, figures against the metric, and the page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_studio_app import numbers
from pattern_studio_app.components import hops_map, reach_growth
from pattern_studio_app.events import Opened, ReachSet
from pattern_studio_app.pages.reach import Choices, choices
from pattern_studio_app.reach import NEVER, assigned_layers, hop_map, spread
from pattern_studio_app.spreads import spread_job
from pattern_studio_app.state import State, reduce
from pattern_studio_app.work import Work
from streamlit.testing.v1 import AppTest

import pattern_studio as ps
from pattern_studio.metrics import receptive_field
from pattern_studio.plot.colours import DARK, LIGHT
from tests import strategies
from tests.app.drive import begun, figures, html, labelled, settled

PRESET = "causal & (window(255, 0) | sink(4))"
BY_LAYER = "layers({0: causal & window(3, 0), 1:3: sink(1), 3: empty})"


def arrivals(patterns: list[ps.Pattern], problem: ps.Problem, block: int) -> np.ndarray:
    """The layer after which each key block has reached each query block, by products of whole matrices."""
    blocks = -(-problem.q_len // block)
    known = np.eye(blocks, dtype=int)
    out = np.where(known, 0, NEVER)
    for number, pattern in enumerate(patterns, 1):
        mask = ps.dense_mask(pattern, problem, block=block, layer=number - 1).any(0)
        tiles = np.pad(mask, (0, -problem.q_len % block)).reshape(blocks, block, blocks, block).any((1, 3))
        known = ((tiles + np.eye(blocks, dtype=int)) @ known > 0).astype(int)
        out = np.where((out == NEVER) & (known > 0), number, out)
    return out


@settings(max_examples=30, deadline=None)
@given(
    st.lists(strategies.plain, min_size=1, max_size=3), st.integers(1, 70), st.integers(1, 9), st.integers(1, 5),
    st.booleans(),
)  # fmt: skip
def test_arrivals_are_those_of_boolean_products_and_figures_those_of_the_metric(parts, tokens, block, layers, headed):
    if headed:
        parts = [ps.heads({0: part, 1: ps.sink(3)}) for part in parts]
    pattern = parts[0] if len(parts) == 1 else ps.layers({n: parts[n % len(parts)] for n in range(layers)})
    problem = ps.Problem(tokens, heads=1 + headed)
    found = spread(pattern, problem, layers, block)
    np.testing.assert_array_equal(found.arrival, arrivals([pattern] * layers, problem, block))
    assert found.figures == receptive_field(pattern, problem, layers=layers, block=block)


def test_eight_thousand_tokens_exactly():
    pattern = ps.parse("causal & (window(1023, 0) | strided(256))")
    found = spread(pattern, ps.Problem(8192), 3, 1)
    assert (found.figures.hops, found.figures.exact) == (2, True)
    assert found.last_arrival == 2
    row = found.row(8000)
    assert set(np.flatnonzero(row == 1)) == {j for j in range(8000) if 8000 - j < 1024 or (8000 - j) % 256 == 0}
    assert (row[8001:] == NEVER).all()


def test_pooling_keeps_the_first_and_the_last_of_each_cell():
    found = spread(ps.parse("causal & window(2, 0) | sink(1)"), ps.Problem(37), 5, 1)
    pooled = hop_map(found, 10)
    assert pooled.size == 4
    for row in range(10):
        for key in range(10):
            cell = np.s_[4 * row : 4 * row + 4, 4 * key : 4 * key + 4]
            dense = np.tril(np.ones((37, 37), bool))[cell]
            assert pooled.first[row, key] == found.arrival[cell].min()
            assert pooled.last[row, key] == found.arrival[cell].max(where=dense, initial=0)


def test_a_query_and_the_mean_of_all_say_the_same():
    found = spread(ps.parse(PRESET), ps.Problem(1000), 6, 64)
    sums, most = zip(*(reach_growth.query_tokens(found, query) for query in range(1000)), strict=True)
    assert np.mean(sums, 0) == pytest.approx([depth.mean_tokens for depth in found.figures.depths])
    assert np.sum(sums, 0)[-1] / np.sum(most) == pytest.approx(found.figures.depths[-1].coverage)


@pytest.mark.parametrize("c", [LIGHT, DARK])
def test_the_picture_shows_each_layer_and_plays_up_to_the_depth(c):
    found = spread(ps.parse("causal & window(1, 0)"), ps.Problem(6), 4, 1)
    figure = hops_map.figure(found, hop_map(found, 128), 3, c)
    assert [frame.name for frame in figure.frames] == ["1", "2", "3"]
    assert figure.layout.updatemenus[0].buttons[0].args[0] == ("1", "2", "3")
    codes = figure.data[0].z
    assert codes[5].tolist() == [1, 6, 5, 4, 3, 2]  # not within 4 layers, then 4, 3, 2 and 1 of them, and itself
    assert codes[0].tolist() == [2, 0, 0, 0, 0, 0]  # the rest lies ahead
    scales = [[colour for _, colour in frame.data[0].colorscale] for frame in figure.frames]
    for depth, scale in enumerate(scales, 1):
        assert scale[:2] == [c.panel, c.background]
        assert [colour == c.background for colour in scale[3:]] == [n > depth for n in (1, 2, 3, 4)]
    assert len({*hops_map.shades(found, c), c.background, c.panel}) == 6
    assert hops_map.summary(found, 3) == "after 3 layers: 85.7 % of causal pairs"  # 18 of 21
    assert tuple(figure.layout.yaxis.range) == (6, 0)  # row 0 on top


def test_what_nothing_reaches_is_drawn_too():
    found = spread(ps.empty, ps.Problem(5), 2, 1)
    assert (found.last_arrival, found.figures.hops) == (0, None)
    figure = hops_map.figure(found, hop_map(found, 128), 1, LIGHT)
    assert {*figure.data[0].z.ravel().tolist()} == {0, 1, 2}


def test_the_choices_follow_text_and_problem_and_stay_in_range():
    assert choices(State()) == Choices(layers=8, depth=8, block=64, query=1023)
    large = reduce(State(), Opened(Work(q_len=1_048_576, block_q=64)))
    assert choices(large).block == 128  # 8,192 blocks
    text = reduce(State(), Opened(Work(text=BY_LAYER, q_len=40)))
    assert choices(text) == Choices(layers=4, depth=4, block=40, query=39)
    state = State()
    for field, value in (("layers", 5), ("depth", 9), ("block", 1), ("query", 9999)):
        state = reduce(state, ReachSet(field, value))
    assert choices(state) == Choices(layers=5, depth=5, block=1, query=1023)


@pytest.mark.parametrize(
    ("text", "layers"), [("causal", None), (BY_LAYER, 4), ("causal & layers({range(2, 30, 3): dense})", 30)]
)
def test_the_layers_that_a_text_names(text, layers):
    assert assigned_layers(ps.parse(text)) == layers


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("expected 1 to 64 layers, got 65; choose as many", lambda: spread(ps.causal, ps.Problem(4), 65, 1)),
        ("expected at most 8,192 blocks for a picture of all pairs, got 8,193; choose blocks of 2 tokens or more",
         lambda: spread(ps.causal, ps.Problem(8193), 1, 1)),
        ("expected self-attention over at least one token, got q_len 2, kv_len 3",
         lambda: spread(ps.causal, ps.Problem(2, 3), 1, 1)),
        ("layer 4 has no pattern in layers", lambda: spread(ps.parse(BY_LAYER), ps.Problem(9), 5, 1)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()


def page() -> None:
    from pattern_studio_app.pages import reach

    reach.render()


def started(**params: str) -> AppTest:
    return begun(page, **params)


def test_the_page_says_what_the_metric_says():
    at = started()
    told = receptive_field(ps.parse(PRESET), ps.Problem(1024), layers=8, block=64)
    assert figures(at) == {
        "Layers to reach all": "4",
        "Reached after 8": "100 %",
        "Tokens, mean": numbers.count(round(told.depths[7].mean_tokens)),
        "Tokens, min": "64",
    }
    assert "At most this much: a block of 64 tokens with one allowed pair counts as whole." in html(at)
    labelled(at.selectbox, "Resolution").set_value(1)
    settled(at)
    labelled(at.slider, "After layers").set_value(3)
    settled(at)
    told = receptive_field(ps.parse(PRESET), ps.Problem(1024), layers=8)
    assert figures(at)["Layers to reach all"] == str(told.hops) == "4"
    assert figures(at)["Reached after 3"] == numbers.percent(told.depths[2].coverage)
    assert "Exact for every pair of tokens." in html(at)
    for depth in told.depths:
        assert f"<tr><td>{depth.layers}</td><td>{numbers.percent(depth.coverage)}</td>" in html(at)


def test_another_query_and_other_layers():
    at = started()
    labelled(at.number_input, "Query row").set_value(100)
    settled(at)
    assert "queries 64 to 127" in html(at)
    labelled(at.number_input, "Layers").set_value(1)
    settled(at)
    assert not at.slider  # one layer leaves nothing to choose
    assert figures(at)["Layers to reach all"] == "more than 1"


def test_a_text_that_assigns_patterns_by_layer():
    at = started(p=BY_LAYER, q="40", bq="1", h="1")
    assert labelled(at.number_input, "Layers").value == 4
    assert figures(at)["Reached after 4"] == numbers.percent(
        receptive_field(ps.parse(BY_LAYER), ps.Problem(40), layers=4).depths[3].coverage
    )
    labelled(at.number_input, "Layers").set_value(5)
    assert "layer 4 has no pattern in layers()" in html(settled(at))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"q": "100", "kv": "200"}, "layers can only be composed where queries and keys are the same tokens"),
        ({"p": "causal & docs"}, "docs needs the document lengths"),
        ({"docs": "1, 2"}, "must add up to kv_len 1024"),
    ],
)
def test_what_does_not_fit_is_said(params, message):
    at = started(**params)
    assert message in html(at)
    assert not at.metric


def test_a_million_tokens_are_composed_in_blocks():
    at = started(p="causal & (window(65535, 0) | sink(4))", q="1048576", h="1")
    assert labelled(at.selectbox, "Resolution").options[0] == "blocks of 128"
    told = spread_job("test", at.session_state["studio session"].state, 8, 128).result(120)
    assert figures(at)["Reached after 8"] == numbers.percent(told.figures.depths[7].coverage)
    assert "Smaller is closer." in html(at)
