"""allocate: one option for each of many parts, the most value that a shared budget pays for."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import StudioError

ROUNDING = 1e-12
"""Relative; values are sums of float64 masses, so equal steps differ in their last bits."""


@dataclass(frozen=True)
class Option:
    """What one choice costs, in tiles, and is worth."""

    cost: int
    value: float


def allocate(parts: Sequence[Sequence[Option]], budget: int, floor: int = 0) -> list[int]:
    """The index of the option taken for each part.

    Upgrades along each part's concave hull, the most value for a tile first, while the budget pays for
    them; what is left then goes to the best single upgrades that still fit. `floor` is the least that a
    part gets where it has an option that costs as much. Ties go to the earlier part. Best possible up to
    the last upgrade that did not fit (the greedy solution of a multiple-choice knapsack).

    Raises StudioError where a part has no option, or the cheapest allowed options cost more than the budget.

    Source: Sinha and Zoltners, The Multiple-Choice Knapsack Problem (1979).

    >>> steep, flat = (Option(1, 0.1), Option(4, 0.9)), (Option(1, 0.5), Option(4, 0.6))
    >>> allocate([steep, flat], budget=5)
    [1, 0]
    """
    ladders = [_ladder(n, options, floor) for n, options in enumerate(parts)]
    taken = [ladder[0] for ladder in ladders]
    left = budget - sum(parts[n][at].cost for n, at in enumerate(taken))
    if left < 0:
        raise StudioError(
            f"a budget of {budget:,} tiles does not pay for the least of each of the {len(parts)} parts, "
            f"{budget - left:,} tiles: ask for a larger density, a smaller floor, or smaller blocks"
        )

    def step(n: int, rung: int) -> tuple[float, int, int]:
        low, high = (parts[n][ladders[n][at]] for at in (rung - 1, rung))
        return (low.value - high.value) / (high.cost - low.cost), n, rung

    queue = [step(n, 1) for n, ladder in enumerate(ladders) if len(ladder) > 1]
    heapq.heapify(queue)
    while queue:
        _, n, rung = heapq.heappop(queue)
        price = parts[n][ladders[n][rung]].cost - parts[n][taken[n]].cost
        if price > left:
            continue  # nor does any higher rung of this part fit
        taken[n], left = ladders[n][rung], left - price
        if rung + 1 < len(ladders[n]):
            heapq.heappush(queue, step(n, rung + 1))
    return _filled(parts, taken, left)


def _ladder(n: int, options: Sequence[Option], floor: int) -> list[int]:
    """The options on the upper concave hull, by rising cost and value, from the cheapest that meets the floor."""
    if not options:
        raise StudioError(f"part {n} has no option to choose from; give each at least one")
    least = min(floor, max(option.cost for option in options))
    order = sorted(
        (n for n, option in enumerate(options) if option.cost >= least),
        key=lambda at: (options[at].cost, -options[at].value, at),
    )
    hull: list[int] = []
    for at in order:
        if hull and options[at].value <= options[hull[-1]].value:
            continue
        while hull and options[hull[-1]].cost == options[at].cost:
            hull.pop()
        while len(hull) > 1 and _sags(options[hull[-2]], options[hull[-1]], options[at]):
            hull.pop()
        hull.append(at)
    return hull


def _sags(low: Option, middle: Option, high: Option) -> bool:
    """Whether the middle lies below the line from low to high, by more than sums of values are rounded.

    Options on the line all stay: a budget may pay for a smaller step only.
    """
    slope = (high.value - low.value) / (high.cost - low.cost)
    return middle.value + ROUNDING * high.value < low.value + slope * (middle.cost - low.cost)


def _filled(parts: Sequence[Sequence[Option]], taken: list[int], left: int) -> list[int]:
    """Spend what is left on single upgrades, the most value first."""
    while True:
        gain, n, at = max(
            (
                (option.value - parts[n][taken[n]].value, -n, at)
                for n, options in enumerate(parts)
                for at, option in enumerate(options)
                if 0 <= option.cost - parts[n][taken[n]].cost <= left
            ),
            default=(0.0, 0, 0),
        )
        if gain <= 0:
            return taken
        left -= parts[-n][at].cost - parts[-n][taken[-n]].cost
        taken[-n] = at
