"""Keyed permutations of [0, size): draws that no generator is touched for, the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .columns import Ints

ROUNDS = 4  # of the Feistel network: its draws need to look random, not to keep secrets
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def keyed(seed: int, number: Ints) -> Ints:
    """The key of one permutation for each number."""
    number = np.ascontiguousarray(number, np.int64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant, here and below
        return _mix(number.astype(np.uint64) * GOLDEN + _mix(np.full(number.shape, seed + 1, np.uint64) * GOLDEN))


def permuted(value: Ints, key: Ints, size: Ints) -> Ints:
    """Where the key's permutation of [0, size) sends each value; values outside stay where they are.

    A Feistel network over the next even number of bits, walked until it lands below `size`
    (Black and Rogaway 2002).

    >>> sorted(permuted(np.arange(5), keyed(0, np.zeros(5)), np.full(5, 5)).tolist())
    [0, 1, 2, 3, 4]
    """
    return _walked(value, key, size, _forth)


def restored(value: Ints, key: Ints, size: Ints) -> Ints:
    """The inverse of `permuted`."""
    return _walked(value, key, size, _back)


def _walked(value: Ints, key: NDArray[np.uint64], size: Ints, step) -> Ints:
    shape = np.shape(value)
    value, key = (np.ascontiguousarray(np.broadcast_to(a, shape)).ravel() for a in (value, key))
    size = np.asarray(size)
    if size.size and (size == size.flat[0]).all():
        size = size.flat[0] + np.zeros(1, np.int64)  # one for all, which is the usual case
    else:
        size = np.ascontiguousarray(np.broadcast_to(size, shape)).ravel()
    half = np.maximum((np.frexp(np.maximum(size - 1, 1).astype(float))[1] + 1) // 2, 1).astype(np.uint64)
    mask, limit = (np.uint64(1) << half) - np.uint64(1), size.astype(np.uint64)
    result = value.astype(np.uint64)
    inside = (value >= 0) & (value < size)
    walking = slice(None) if inside.all() else np.flatnonzero(inside)
    now = result[walking]

    def of(each: NDArray) -> NDArray:
        return each if len(each) == 1 else each[walking]

    with np.errstate(over="ignore"):
        while len(now):
            now = step(now, key[walking], of(half), of(mask))
            result[walking] = now
            on = np.flatnonzero(now >= of(limit))
            walking, now = on if isinstance(walking, slice) else walking[on], now[on]
    return result.astype(np.int64).reshape(shape)


def _forth(v: NDArray, key: NDArray, half: NDArray, mask: NDArray) -> Ints:
    left, right = v >> half, v & mask
    for turn in range(ROUNDS):
        left, right = right, left ^ (_mix(key + right * GOLDEN + np.uint64(turn)) & mask)
    return (left << half) | right


def _back(v: NDArray, key: NDArray, half: NDArray, mask: NDArray) -> Ints:
    left, right = v >> half, v & mask
    for turn in reversed(range(ROUNDS)):
        left, right = right ^ (_mix(key + left * GOLDEN + np.uint64(turn)) & mask), left
    return (left << half) | right


def _mix(x: Ints) -> Ints:
    """A 64-bit finaliser that spreads every bit (the constants of Stafford's Mix13, as in SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
