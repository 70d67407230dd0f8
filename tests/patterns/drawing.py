"""Patterns drawn by hand: rows are queries, columns keys, # allowed."""

from __future__ import annotations

import numpy as np

import pattern_studio as ps


def assert_drawn(pattern: ps.Pattern, drawing: str) -> None:
    """The predicate and the lowered layout are what was drawn; the transpose is its mirror image."""
    want = np.array([[c == "#" for c in row] for row in drawing.split()])
    n = len(want)
    np.testing.assert_array_equal(ps.dense_mask(pattern, ps.Problem(n))[0], want)
    for block in ((2, 1), (3, 2)):
        np.testing.assert_array_equal(ps.lower(pattern, q_len=n, block=block).expand(), want)
        np.testing.assert_array_equal(ps.lower(pattern.T, q_len=n, block=block).expand(), want.T)
    assert ps.parse(str(pattern)) == pattern
