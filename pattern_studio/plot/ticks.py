"""Round token positions for the axes of a picture."""

from __future__ import annotations


def ticks(start: int, stop: int, most: int = 9) -> list[int]:
    """At most `most` positions in `start .. stop`, apart by a power of two.

    >>> ticks(0, 1024)
    [0, 128, 256, 384, 512, 640, 768, 896, 1024]
    >>> ticks(100, 107)
    [100, 101, 102, 103, 104, 105, 106, 107]
    """
    step = 1
    while (stop - start) // step + 1 > most:
        step *= 2
    first = -(-start // step) * step
    return list(range(first, stop + 1, step))


def label(position: int) -> str:
    """A position as a short text: exact below 10,000, in K and M (powers of two) where that is exact.

    >>> label(512), label(16384), label(1048576), label(12345)
    ('512', '16K', '1M', '12,345')
    """
    if position >= 2**20 and position % 2**20 == 0:
        return f"{position // 2**20}M"
    if position >= 10_000 and position % 2**10 == 0:
        return f"{position // 2**10}K"
    return f"{position:,}"
