"""natten: the mask of its parameters, by the rule of its documentation, written out, and by NATTEN where it is there.

NATTEN installs from its source alone; without its own kernels (`pip install --no-build-isolation natten` where there is
no CUDA) it runs through torch's FlexAttention, on a CPU too.
"""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
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


@pytest.mark.skipif(find_spec("natten") is None, reason="needs the package natten")
@pytest.mark.filterwarnings("ignore:return_lse is deprecated:FutureWarning")  # NATTEN's call
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize(
    "text",
    [
        "causal & window(6, 0)",
        "causal & window(62, 0)",
        "window(5, 5)",  # moved in at the borders
        "dilated(4, 0, rate=5)",
        "dilated(3, 3, rate=4)",
        "dilated(1, 1, rate=20)",
    ],
)
def test_natten_attends_to_the_pairs_that_are_counted(text):
    """Scores are all 0 and values one-hot, so that an output says which keys it is the mean of."""
    from natten import na1d

    pattern, length = ps.parse(text), 64
    file = export(pattern, ps.Problem(length), 64, to="natten", allow="cover")
    scores, one_hot = torch.zeros(1, length, 1, length), torch.eye(length)[None, :, None]
    seen = na1d(scores, scores, one_hot, **json.loads(file.content))[0, :, 0].numpy() > 0
    assert np.array_equal(seen, neighbors(length, **json.loads(file.content)))
    wanted = ps.dense_mask(pattern, ps.Problem(length))[0]
    assert not (wanted & ~seen).any()
    assert str(file.fidelity) == (f"cover(+{seen.sum() - wanted.sum()})" if (seen & ~wanted).any() else "exact")
