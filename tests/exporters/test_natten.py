"""natten: the mask of its parameters. NATTEN itself needs a build: the rule of its documentation is written out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import check, export
from tests.exporters.consumers import anything, compared, long_problems

windows = st.one_of(
    st.builds(lambda n: ps.causal & ps.window(n, 4), st.integers(0, 400)),
    st.builds(lambda n: ps.window(n, n), st.integers(0, 200)),
    st.builds(lambda n, d: ps.dilated(n, 0, rate=d), st.integers(0, 9), st.integers(1, 20)),
    st.builds(lambda n, d: ps.dilated(n, n, rate=d), st.integers(0, 9), st.integers(1, 20)),
)


def neighbors(length: int, kernel_size: int, stride: int, dilation: int, is_causal: bool) -> np.ndarray:
    """The keys of each query, bool [length, length]: windows among the keys of its residue, moved in at the borders."""
    assert (kernel_size >= 2, stride, kernel_size * dilation <= length) == (True, 1, True)
    out = np.zeros((length, length), bool)
    for query in range(length):
        peers = np.arange(query % dilation, length, dilation)
        place = query // dilation
        if is_causal:
            kept = peers[max(place - kernel_size + 1, 0) : place + 1]
        else:
            begin = min(max(place - kernel_size // 2, 0), len(peers) - kernel_size)
            kept = peers[begin : begin + kernel_size]
        out[query, kept] = True
    return out


def computed(file, problem):
    mask = neighbors(problem.kv_len, **json.loads(file.content))
    return np.broadcast_to(mask, (problem.heads, *mask.shape))


@settings(max_examples=40, deadline=None)
@given(st.one_of(windows, anything), long_problems(square=True))
def test_windows_hold_the_pattern(pattern, problem):
    compared("natten", pattern, problem, 64, lambda f: computed(f, problem))


@pytest.mark.parametrize(
    ("pattern", "length", "message"),
    [
        (ps.dilated(2, 2, rate=16), 10, "kernel_size is at least 2"),  # A3: of the taps only the query itself is left
        (ps.dilated(3, 0, rate=3), 10, r"must not exceed the length 10, got 4 \* 3"),  # A3
        (ps.window(3, 2), 64, "causal or symmetric, this one has 3 and 2 taps"),
        (ps.causal & ps.sink(3), 64, "windows only"),
    ],
)
def test_what_does_not_fit_is_said(pattern, length, message):
    with pytest.raises(ps.StudioError, match=message):
        export(pattern, ps.Problem(length), to="natten", allow="cover")


def test_borders_of_symmetric_windows_are_counted():
    assert str(check(ps.window(1, 1), ps.Problem(8), to="natten")) == "cover(+2)"
