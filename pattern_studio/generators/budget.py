"""The search that all generators share: the largest member of a growing family that a budget pays for.

A family is a chain of patterns, each of which holds the one before; a step adds at most one tile to
a query block. The largest member within the budget therefore misses it by less than one tile a row,
and a larger budget buys a pattern that holds the smaller one's. Tiles are counted by lowering.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..errors import StudioError
from ..expr import Pattern
from ..lowering import lower
from ..patterns import PRIMITIVES
from ..problem import Problem, block_shape

CAUSAL, DENSE = PRIMITIVES["causal"], PRIMITIVES["dense"]


@dataclass(frozen=True)
class Budget:
    """A block density that is asked for: of the tiles of the causal triangle, or of all tiles.

    `causal` says whether the pattern keeps to `j <= i`; by default `of` follows it. `problem` is the
    `given` one without heads and documents, which change nothing: these patterns ask for neither.
    """

    density: float
    given: Problem
    problem: Problem
    block: tuple[int, int]
    causal: bool
    of: str

    @classmethod
    def checked(cls, density: object, problem: object, block: object, causal: object, of: object) -> Budget:
        """The budget, or a StudioError that says what is wrong with it."""
        if isinstance(density, bool) or not isinstance(density, (int, float)) or not 0 < density <= 1:
            raise StudioError(
                f"a block density lies above 0 and up to 1, got {density!r}; it is the share that is kept"
            )
        if not isinstance(problem, Problem):
            raise StudioError(f"a generator takes a Problem, got {problem!r}; such as Problem(q_len=4096)")
        if not isinstance(causal, bool):
            raise StudioError(f"causal must be True or False, got {causal!r}")
        if of not in (None, "causal", "all"):
            raise StudioError(f"of must be 'causal' (tiles of the causal triangle) or 'all' (all tiles), got {of!r}")
        if problem.q_len == 0 or problem.kv_len == 0:
            raise StudioError(f"there are no tiles with q_len {problem.q_len} and kv_len {problem.kv_len}")
        plain = Problem(problem.q_len, problem.kv_len, problem.q_offset)
        return cls(
            float(density), problem, plain, block_shape(block), causal, str(of or ("causal" if causal else "all"))
        )

    @property
    def frame(self) -> Pattern:
        """All that the pattern may keep."""
        return CAUSAL if self.causal else DENSE

    @property
    def first(self) -> int:
        """Position of the first query."""
        return self.problem.offset

    @property
    def last(self) -> int:
        """Position of the last query."""
        return self.problem.offset + self.problem.q_len - 1

    @property
    def furthest(self) -> tuple[int, int]:
        """The largest distance from a query to a key before it, and after it; 0 where there is none."""
        after = 0 if self.causal else max(self.problem.kv_len - 1 - self.first, 0)
        return max(self.last, 0), after

    @property
    def nearest(self) -> tuple[int, int]:
        """How far queries beyond the last key must look back, and those before key 0 ahead, to see a key at all."""
        return max(self.last - self.problem.kv_len + 1, 0), 0 if self.causal else max(-self.first, 0)

    def tiles(self, pattern: Pattern) -> int:
        """Active tiles among those that the density is a fraction of."""
        counted = CAUSAL & pattern if self.of == "causal" and not self.causal else pattern
        return lower(counted, self.problem, block=self.block).tiles()

    @property
    def total(self) -> int:
        """The tiles that the density is a fraction of."""
        everything = lower(CAUSAL if self.of == "causal" else DENSE, self.problem, block=self.block)
        return everything.tiles()


class Family(ABC):
    """A chain of patterns for one budget's problem and block: `at(0)` the least, `at(steps)` the whole frame."""

    steps: int

    @abstractmethod
    def at(self, step: int) -> Pattern:
        """The member at a step from 0 to `steps`."""


@dataclass(frozen=True)
class Achieved:
    """What a pattern keeps, each in [0, 1]: densities of pairs (token) and of active tiles (block).

    Of all pairs or tiles, or of the causal triangle (the pairs with `j <= i`, the tiles that hold
    one); None where there are none.
    """

    token: float | None
    token_of_causal: float | None
    block: float | None
    block_of_causal: float | None


@dataclass(frozen=True)
class Generated:
    """A pattern by budget: `requested` is the block density asked for, `of` what it is a fraction of.

    `tiles` of the `tiles_allowed` that the budget pays for are active, on one head.
    """

    pattern: Pattern
    family: str
    requested: float
    of: str
    tiles: int
    tiles_allowed: int
    problem: Problem = field(repr=False)
    block: tuple[int, int]
    achieved: Achieved

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return {
            "family": self.family,
            "pattern": str(self.pattern),
            "requested_block_density": self.requested,
            "of": self.of,
            "tiles": self.tiles,
            "tiles_allowed": self.tiles_allowed,
            "block": list(self.block),
            "achieved": dict(vars(self.achieved)),
        }

    def __str__(self) -> str:
        a = self.achieved
        whole = "the causal triangle's tiles" if self.of == "causal" else "all tiles"
        got = a.block_of_causal if self.of == "causal" else a.block
        return (
            f"{self.pattern}\n{self.family}: block density {got:.4g} of {whole}, {self.requested:.4g} asked\n"
            f"token density {a.token:.4g}, {_shown(a.token_of_causal)} of the causal triangle"
        )


def spend(name: str, budget: Budget, family: Callable[[Budget], Family]) -> Generated:
    """The largest member of the family that the budget pays for."""
    chain, total = family(budget), budget.total
    # The product of a printed density and a count may fall short of a whole number by its rounding.
    allowed = math.floor(budget.density * total + 1e-9 * total)
    tiles = cache(lambda step: budget.tiles(chain.at(step)))
    if tiles(0) > allowed:
        raise StudioError(_too_little(name, budget, family, tiles(0), allowed, total))
    if tiles(chain.steps) < allowed:
        raise StudioError(
            f"a causal pattern has at most {tiles(chain.steps):,} of all {total:,} tiles, a block density of "
            f"{math.floor(1e4 * tiles(chain.steps) / total) / 1e4:g}; {budget.density:g} was asked for: ask for less, "
            "or give it of='causal'"
        )
    low, high = 0, chain.steps
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tiles(middle) <= allowed else (low, middle - 1)
    pattern = chain.at(low)
    achieved = _achieved(pattern, budget)
    return Generated(
        pattern, name, budget.density, budget.of, tiles(low), allowed, budget.given, budget.block, achieved
    )


def _too_little(
    name: str, budget: Budget, family: Callable[[Budget], Family], least: int, allowed: int, total: int
) -> str:
    of = "the causal triangle's" if budget.of == "causal" else "all"
    text = (
        f"{name}: a block density of {budget.density:g} pays for {allowed:,} of {of} {total:,} tiles, but the diagonal "
        f"and what else is always kept take {least:,}: the least at block {_name(budget.block)} is "
        f"{math.ceil(1e4 * least / total) / 1e4:g}"
    )
    block = budget.block
    while max(block) > 1:
        block = max(block[0] // 2, 1), max(block[1] // 2, 1)
        finer = replace(budget, block=block)
        if finer.tiles(family(finer).at(0)) <= budget.density * finer.total:
            return f"{text}; {budget.density:g} works at block {_name(block)}"
    return f"{text}; no smaller block pays for it either: ask for more, or keep fewer sinks or globals"


def _name(block: tuple[int, int]) -> str:
    return str(block[0]) if block[0] == block[1] else f"{block[0]}x{block[1]}"


def _achieved(pattern: Pattern, budget: Budget) -> Achieved:
    mine, past, triangle, everything = (
        lower(p, budget.problem, block=budget.block) for p in (pattern, CAUSAL & pattern, CAUSAL, DENSE)
    )
    return Achieved(
        _share(mine.pairs, everything.pairs),
        _share(past.pairs, triangle.pairs),
        _share(mine.tiles(), everything.tiles()),
        _share(past.tiles(), triangle.tiles()),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _shown(share: float | None) -> str:
    return "none" if share is None else f"{share:.4g}"
