"""hierarchical: a partner at every power of two, and a window as wide as the budget allows."""

from __future__ import annotations

from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import Problem, whole
from .budget import Budget, Family, Generated, spend
from .growth import joined, near, turns
from .local_window import LocalWindow

butterfly, sink, window = PRIMITIVES["butterfly"], PRIMITIVES["sink"], PRIMITIVES["window"]


class Hierarchical(Family):
    """The levels of a butterfly by distance, near ones first; with all of them, windows that grow."""

    def __init__(self, budget: Budget, kept: tuple[Pattern, ...]) -> None:
        self.budget, self.kept = budget, kept
        self.levels = butterfly(unit=budget.block[0])
        self.wide = LocalWindow(budget, (*kept, self.levels))
        self.first = sum(budget.furthest)
        self.steps = self.first + self.wide.steps

    def at(self, step: int) -> Pattern:
        if step >= self.first:
            return self.wide.at(step - self.first)
        budget = self.budget
        parts = [*self.kept, near(*budget.nearest, block_k=budget.block[1], causal=budget.causal)]
        if step:
            parts.append(self.levels & window(*turns(step, budget.furthest, budget.block[1])))
        return budget.frame & joined(parts) if budget.causal else joined(parts)


def hierarchical(
    density: float,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    *,
    causal: bool = True,
    of: str | None = None,
    sinks: int = 0,
) -> Generated:
    """Each query block sees a partner block at every power of two, and a window as wide as is paid for.

    The partners are `butterfly`'s: blocks whose number differs in one bit, so that in as many layers
    as there are levels any block hears from any block before it. A budget buys the levels first, from
    near to far, then the window. Other options, errors and guarantees are those of `local_window`;
    where query blocks do not start at multiples of their size, a step can take two tiles.

    Source: Pixelated Butterfly's flat block butterfly (Dao et al. 2022).

    >>> print(hierarchical(0.4, Problem(4096), block=128).pattern)
    causal & (butterfly(unit=128) | window(640, 0))
    """
    budget = Budget.checked(density, problem, block, causal, of)
    sinks = whole("sinks", sinks, 0)
    kept = (sink(sinks),) if sinks else ()
    return spend("hierarchical", budget, lambda b: Hierarchical(b, kept))
