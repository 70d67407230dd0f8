"""local_window: a window as wide as the budget allows."""

from __future__ import annotations

from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import Problem, whole
from .budget import Budget, Family, Generated, spend
from .growth import joined, near, turns

sink = PRIMITIVES["sink"]


class LocalWindow(Family):
    """Windows around the query, one key wider at each step, beside what is always kept."""

    def __init__(self, budget: Budget, kept: tuple[Pattern, ...] = ()) -> None:
        self.budget, self.kept = budget, kept
        self.caps = [max(far - close, 0) for far, close in zip(budget.furthest, budget.nearest, strict=True)]
        self.steps = sum(self.caps)

    def at(self, step: int) -> Pattern:
        if step == self.steps:
            return self.budget.frame
        # Both sides in turns of a block: half a block on each would pay for two tiles and fill neither.
        sides = zip(self.budget.nearest, turns(step, self.caps, self.budget.block[1]), strict=True)
        left, right = (close + more for close, more in sides)
        inside = joined([*self.kept, near(left, right, self.budget.block[1], self.budget.causal)])
        return self.budget.frame & inside if self.budget.causal else inside


def local_window(
    density: float,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    *,
    causal: bool = True,
    of: str | None = None,
    sinks: int = 0,
) -> Generated:
    """A window around each query, and the first `sinks` keys, as wide as a block density allows.

    `density` is the share of tiles that is kept: `of="causal"`, the tiles of the causal triangle (the
    default for `causal=True`), or `of="all"`. Never more than asked, and less by under one tile a
    query block; a larger density holds the smaller one's pairs. The diagonal and the sinks are always
    kept. Raises StudioError where they cost more than the budget, with the least that works.

    Source: Longformer's sliding windows (Beltagy et al. 2020); sinks, StreamingLLM (Xiao et al. 2023).

    >>> print(local_window(0.25, Problem(4096), block=128))
    causal & window(384, 0)
    local_window: block density 0.2311 of the causal triangle's tiles, 0.25 asked
    token density 0.08959, 0.1791 of the causal triangle
    """
    budget = Budget.checked(density, problem, block, causal, of)
    sinks = whole("sinks", sinks, 0)
    kept = (sink(sinks),) if sinks else ()
    return spend("local_window", budget, lambda b: LocalWindow(b, kept))
