"""Distinct rows and integer order: the fast forms against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pattern_studio import distinct
from pattern_studio.order import order_of

tables = hnp.arrays(np.uint8, st.tuples(st.integers(0, 30), st.integers(1, 20)), elements=st.integers(0, 2))


def check(table: np.ndarray) -> None:
    example, which = distinct.distinct_rows(table)
    np.testing.assert_array_equal(table[example][which], table)
    assert len({row.tobytes() for row in table}) == len(example)
    assert (np.diff(example) > 0).all()
    for kind, row in enumerate(example):
        assert which[row] == kind
        assert row == np.flatnonzero(which == kind)[0]


@given(tables)
def test_distinct_rows(table):
    check(table)


def test_rows_that_share_a_slot_are_told_apart(monkeypatch):
    real = distinct._hashed
    monkeypatch.setattr(distinct, "_hashed", lambda words, turn: real(words, turn) * (turn > 3))  # all alike at first
    check(np.random.default_rng(0).integers(0, 2, (40, 9), np.uint8))


@pytest.mark.parametrize("reach", [5, 2**40, 2**62])
def test_order_is_stable(reach):
    key = np.random.default_rng(0).integers(-reach, reach, 1000)
    key[::7] = key[0]
    np.testing.assert_array_equal(order_of(key), np.argsort(key, kind="stable"))
    assert order_of(np.sort(key)) == slice(None)
    assert order_of(key[:0]) == slice(None)
