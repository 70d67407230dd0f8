"""minference: the mask of its streaming kernel. The kernel needs CUDA: its rule is written out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import export, read
from tests.exporters.consumers import anything, compared, long_problems

streams = st.builds(
    lambda w, n, m: ps.heads({0: ps.causal & (ps.window(w, 0) | ps.sink(n)), range(1, 3): ps.causal & ps.window(m, 5)}),
    st.integers(0, 80),
    st.integers(0, 80),
    st.integers(0, 400),
)


def computed(file, problem):
    (layer,) = json.loads(file.content)
    assert list(layer) == ["0", "1", "2"]
    distance = np.arange(problem.q_len)[:, None] - np.arange(problem.kv_len)
    out = []
    for kind, sinks, window, score in layer.values():
        assert (kind, type(score)) == ("stream_llm", float)
        near = (distance >= 0) & (distance < window)
        far = (distance >= window) & (np.arange(problem.kv_len) < sinks)
        out.append(near | far)
    return np.stack(out)


@settings(max_examples=30, deadline=None)
@given(st.one_of(streams, anything), long_problems(square=True))
def test_heads_are_the_pattern(pattern, problem):
    file = compared("minference", pattern, problem, 64, lambda f: computed(f, problem))
    if file:
        np.testing.assert_array_equal(ps.dense_mask(read(file.data), problem), computed(file, problem))


def test_budgets_are_no_masks():
    with pytest.raises(ps.StudioError, match="head 1 is no causal window with sinks; its other kinds are budgets"):
        export(ps.heads({0: ps.causal, 1: ps.causal & ps.strided(3)}), ps.Problem(64, heads=2), to="minference")
    with pytest.raises(ps.StudioError, match="a 'vertical_and_slash' head is a budget for a choice made at run time"):
        read(b'[{"0": ["vertical_and_slash", 1000, 6096, 1]}]')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "one object of heads per layer"),
        (b"[{}]", "one object of heads per layer"),
        (b'[{"a": 1}]', "head numbers as keys, got 'a'"),
        (b'[{"0": ["stream_llm", 1]}]', r"\[kind, sinks, window, score\]"),
        (b'[{"0": ["stream_llm", 1, 0, 1]}]', "a window must lie between 1"),
        (b'[{"0": ["stream_llm", -1, 5, 1]}]', "the sinks must lie between 0"),
        (b'[{"0": ["stream_llm", 1, true, 1]}]', "a window must be a whole number"),
        (b"[" * 100_000, "expected JSON text"),
    ],
)
def test_hostile_files_are_refused(text, message):
    with pytest.raises(ps.StudioError, match=message):
        read(text)


def test_layers_are_read():
    pattern = read(b'[{"0": ["stream_llm", 2, 5, 1]}, {"0": ["stream_llm", 0, 3, 1]}]')
    assert isinstance(pattern, ps.Pattern)
    assert str(pattern.resolve(0, 1)) == "causal & (window(2, 0) | sink(0))"
