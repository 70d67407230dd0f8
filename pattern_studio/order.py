"""Sorting integer keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def order_of(key: NDArray[Any]) -> NDArray[Any] | slice:
    """What sorts integer keys (int64), stably; a slice, which copies nothing, if they are in order.

    >>> order_of(np.array([5, 3, 5, 1])).tolist()
    [3, 1, 0, 2]
    """
    if (key[1:] >= key[:-1]).all():
        return slice(None)
    low, bits = int(key.min()), len(key).bit_length()
    if (int(key.max()) - low) >> (62 - bits):
        return np.argsort(key, kind="stable")
    # Sorting numbers is several times as fast as sorting places, so the places ride along in the low bits.
    packed = (key - low) << bits | np.arange(len(key))
    packed.sort()
    return packed & ((1 << bits) - 1)
