"""Distinct rows of large tables, by hashing and comparing: what makes equal tiles one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .columns import Ints

CHUNK_BYTES = 2**24  # compared at a time
NARROW = 4  # words of a row up to which comparing column by column is faster


def distinct_rows(table: NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """Index of the first row of each kind, rising, and the kind of each row; uint8 [rows, bytes].

    >>> distinct_rows(np.array([[7, 7], [0, 1], [7, 7]], np.uint8))
    (array([0, 1]), array([0, 1, 0]))
    """
    rows, size = table.shape
    words = np.zeros((rows, max(-(-size // 8), 1) * 8), np.uint8)
    words[:, :size] = table
    words = words.view(np.uint64)
    first = np.arange(rows)  # the first row of each row's kind
    left, turn = np.arange(rows), 0
    while len(left):
        # Every row goes to a slot; those that equal the slot's first row are done, the others hash anew.
        bits = int(4 * len(left)).bit_length()
        slot = (_hashed(words[left] if turn else words, turn) >> np.uint64(64 - bits)).astype(np.int64)
        holder = np.empty(1 << bits, np.int64)
        holder[slot[::-1]] = left[::-1]
        found = holder[slot]
        same = _equal(words, left, found)
        first[left[same]] = found[same]
        left, turn = left[~same], turn + 1
    heads = first == np.arange(rows)
    return np.flatnonzero(heads), (np.cumsum(heads) - 1)[first]


def _hashed(words: NDArray[np.uint64], turn: int) -> NDArray[np.uint64]:
    """One number per row, another one at each turn; its high bits depend on all of the row."""
    value = np.full(len(words), turn, np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        for column in words.T:
            value = ((value ^ (value >> np.uint64(29))) + column + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return value


def _equal(words: NDArray[np.uint64], left: Ints, right: Ints) -> NDArray[np.bool_]:
    """Whether rows `left[n]` and `right[n]` are equal."""
    same = left == right
    ask = np.flatnonzero(~same)
    step = max(1, CHUNK_BYTES // (words.shape[1] * 8))
    for begin in range(0, len(ask), step):
        part = ask[begin : begin + step]
        if words.shape[1] <= NARROW:
            same[part] = True
            for column in words.T:
                same[part] &= column[left[part]] == column[right[part]]
        else:
            same[part] = (words[left[part]] == words[right[part]]).all(1)
    return same
