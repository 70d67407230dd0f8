"""xformers: the biases and layouts that the text makes; xFormers needs a build, so its rules are written out."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import export
from tests.exporters.consumers import anything, bottom_right, compared, long_problems, stretched
from tests.exporters.flex import assert_formatted, run_source


@pytest.fixture(autouse=True, scope="module")
def stand_in():
    """A stand-in for xformers.ops.fmha.attn_bias that keeps what it is given."""
    module = ModuleType("xformers.ops.fmha.attn_bias")
    module.LocalAttentionFromBottomRightMask = SimpleNamespace  # type: ignore[attr-defined]
    names = ("xformers", "xformers.ops", "xformers.ops.fmha")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setitem(sys.modules, name, ModuleType(name))
        patch.setitem(sys.modules, module.__name__, module)
        yield


def computed(file, problem):
    module = run_source(file.content, "xformers")
    if hasattr(module, "attn_bias"):
        bias = module.attn_bias()
        s = problem.q_len - problem.kv_len
        q, k = np.arange(problem.q_len)[:, None], np.arange(problem.kv_len)
        mask = (q - bias.window_left <= k + s) & (k + s <= q + bias.window_right)
        return np.broadcast_to(mask, (problem.heads, *mask.shape))
    layout = module.layout()
    assert layout.dtype == torch.int64
    mask = stretched(layout.numpy(), (module.BLOCK_Q, module.BLOCK_K), problem)
    return mask & bottom_right(problem) if module.CAUSAL else mask


windows = st.builds(ps.window, st.integers(0, 300), st.integers(0, 300))


@settings(max_examples=30, deadline=None)
@given(st.one_of(anything, windows), st.one_of(long_problems(), long_problems(square=True)))
def test_text_holds_the_pattern(pattern, problem):
    compared("xformers", pattern, problem, 64, lambda f: computed(f, problem))


def test_generated_text_is_formatted():
    texts = ("causal", "causal & chunk(64)", "heads({0: causal & chunk(64), 1: chunk(128)})")
    problem = ps.Problem(256, heads=2)
    assert_formatted(*(export(ps.parse(text), problem, 64, to="xformers", allow="cover").content for text in texts))


def test_flash_windows_count_both_ends():  # A1: an inclusive (left, right) target gets (3, 0) for W = 4
    text = export(ps.causal & ps.window(3, 0), ps.Problem(8), to="xformers").content
    assert "window_left=3, window_right=0" in text
