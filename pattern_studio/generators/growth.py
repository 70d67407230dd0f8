"""How the members of a family grow: stretches of distances that take turns, and the patterns they make."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from ..expr import Pattern
from ..patterns import PRIMITIVES

chunk, window = PRIMITIVES["chunk"], PRIMITIVES["window"]


def turns(amount: int, caps: Sequence[int], quantum: int) -> list[int]:
    """Share an amount out in turns of `quantum`, first come first served, up to each one's cap.

    One more unit goes to exactly one of them, so that all grow and none shrinks.

    >>> turns(7, (10, 10, 2), quantum=2)
    [3, 2, 2]
    """

    def after(rounds: int) -> list[int]:
        return [min(cap, rounds * quantum) for cap in caps]

    low, high = 0, -(-max(caps, default=0) // quantum)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(after(middle)) <= amount else (low, middle - 1)
    shares = after(low)
    left = amount - sum(shares)
    for n, cap in enumerate(caps):
        more = min(quantum, cap - shares[n], left)
        shares[n] += more
        left -= more
    return shares


def near(left: int, right: int, block_k: int, causal: bool) -> Pattern:
    """The window of a query, and its own key tile: that tile is active anyway, so it is kept whole.

    >>> str(near(0, 0, 128, True)), str(near(128, 0, 128, True))
    ('chunk(128)', 'window(128, 0)')
    """
    parts = []
    if left or right or block_k == 1:
        parts.append(window(left, right))
    if (left if causal else min(left, right)) < block_k - 1:
        parts.append(chunk(block_k))
    return joined(parts)


def joined(parts: Sequence[Pattern]) -> Pattern:
    """The union."""
    return reduce(or_, parts)
