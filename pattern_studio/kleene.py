"""Kleene's three-valued logic over what a column of a strip keeps: ALL, NONE, a BAND, or SOME rows.

Bands are kept exact as long as the result is a band. The rules are sound for every operator: what they
call ALL, NONE or BAND is just that, and what they can't tell is SOME.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import UNBOUNDED

NONE, BAND, SOME, ALL = 0, 1, 2, 3

Ints = NDArray[Any]  # int64

# A value is (state, lo, hi), each an array over segments.
Value = tuple[NDArray[np.uint8], Ints, Ints]


def both(a: Value, b: Value) -> Value:
    """Kleene conjunction. Two bands that each cut a column meet in a band (Helly) or not at all."""
    lo, hi = np.maximum(a[1], b[1]), np.minimum(a[2], b[2])
    state = np.where(
        a[0] == ALL, b[0], np.where(b[0] == ALL, a[0], np.where((a[0] == b[0]) & (a[0] == BAND), BAND, SOME))
    )
    state = np.where((a[0] == NONE) | (b[0] == NONE) | ((state == BAND) & (lo > hi)), NONE, state)
    return _value(state, lo, hi)


def either(a: Value, b: Value) -> Value:
    """Kleene disjunction. Two bands that touch or overlap join in one band."""
    touching = (a[1] <= b[2] + 1) & (b[1] <= a[2] + 1)
    only_a, only_b = b[0] == NONE, a[0] == NONE
    lo = np.where(only_a, a[1], np.where(only_b, b[1], np.minimum(a[1], b[1])))
    hi = np.where(only_a, a[2], np.where(only_b, b[2], np.maximum(a[2], b[2])))
    bands = (a[0] == BAND) & (b[0] == BAND) & touching
    state = np.where(only_a, a[0], np.where(only_b, b[0], np.where(bands, BAND, SOME)))
    return _value(np.where((a[0] == ALL) | (b[0] == ALL), ALL, state), lo, hi)


def neither(a: Value) -> Value:
    """Kleene negation. The complement of a half-open band is a half-open band."""
    lower, upper = a[1] == -UNBOUNDED, a[2] == UNBOUNDED
    lo = np.where(upper, -UNBOUNDED, a[2] + 1)
    hi = np.where(upper, a[1] - 1, UNBOUNDED)
    state = np.select([a[0] == ALL, a[0] == NONE, (a[0] == BAND) & (lower | upper)], [NONE, ALL, BAND], SOME)
    return _value(state, lo, hi)


def one_of(a: Value, b: Value) -> Value:
    """Kleene exclusive or; equal bands cancel."""
    result = either(both(a, neither(b)), both(neither(a), b))
    equal = (a[0] == BAND) & (b[0] == BAND) & (a[1] == b[1]) & (a[2] == b[2])
    unknown = (a[0] == SOME) | (b[0] == SOME)
    cut = np.isin(a[0], (BAND, SOME)) & np.isin(b[0], (BAND, SOME))
    return _value(np.where(equal, NONE, np.where(unknown | cut, SOME, result[0])), result[1], result[2])


def _value(state: NDArray, lo: Ints, hi: Ints) -> Value:
    bands = state == BAND
    return state.astype(np.uint8), np.where(bands, lo, -UNBOUNDED), np.where(bands, hi, UNBOUNDED)
