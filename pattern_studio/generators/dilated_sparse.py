"""dilated_sparse: stretches of keys at dilated distances, as long as the budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import xor

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import Problem, whole
from .budget import CAUSAL, Budget, Family, Generated, spend
from .growth import joined, near, turns

chunk, sink = PRIMITIVES["chunk"], PRIMITIVES["sink"]


class DilatedSparse(Family):
    """A window, and stretches from fixed distances on away from the query's chunk, growing in turns.

    A stretch is the same for all queries of a chunk, one query block, so that its tiles are full
    whatever the key block.
    """

    def __init__(self, budget: Budget, multiples: Sequence[int], kept: tuple[Pattern, ...]) -> None:
        self.budget, self.kept = budget, kept
        self.size = budget.block[0]
        step = max(budget.block)
        unit = max(max(budget.furthest) // (multiples[-1] + 1) // step, 1) * step
        grown = []
        for side, (far, close) in enumerate(zip(budget.furthest, budget.nearest, strict=True)):
            far += self.size if far else 1  # the last query of a chunk sees stretches from the chunk's end on
            starts = [close + 1, *(m * unit for m in multiples if m * unit > close + 1), far]
            grown += [(a, side, min(b, far) - a) for a, b in pairwise(starts) if a < far]
        self.grown = sorted(grown)
        self.steps = sum(cap for _, _, cap in grown)

    def at(self, step: int) -> Pattern:
        if step == self.steps:
            return self.budget.frame
        reach = list(self.budget.nearest)
        edges: tuple[list[int], list[int]] = [], []
        lengths = turns(step, [cap for _, _, cap in self.grown], self.size)
        for (start, side, _), length in zip(self.grown, lengths, strict=True):
            if start == self.budget.nearest[side] + 1:
                reach[side] += length
            elif length and edges[side] and edges[side][-1] == start:
                edges[side][-1] += length
            elif length:
                edges[side].extend((start, start + length))
        parts = [*self.kept, near(*reach, block_k=self.budget.block[1], causal=self.budget.causal)]
        up_to = CAUSAL | chunk(self.size)  # every key up to the end of the query's chunk
        if edges[0]:
            parts.append(reduce(xor, (up_to >> -edge for edge in edges[0])))
        if edges[1]:
            parts.append(reduce(xor, (up_to.T >> edge for edge in edges[1])))
        return self.budget.frame & joined(parts) if self.budget.causal else joined(parts)


def dilated_sparse(
    density: float,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    *,
    causal: bool = True,
    of: str | None = None,
    rates: Sequence[int] = (1, 2, 4, 8, 16),
    taps: int = 2,
    sinks: int = 0,
) -> Generated:
    """Stretches of keys at the distances `k * rate * unit`, for `k` up to `taps` and every rate, and a local window.

    This is a dilated window of every rate, with a stretch of keys in place of each single one, the
    same for all queries of a block. `unit` is whole tiles, so long that the taps span the problem;
    the stretches' length is what the budget pays for: they grow in turns of a query block, near ones
    first, until all meet. Other options, errors and guarantees are those of `local_window`; where
    query blocks do not start at multiples of their size, a step can take two tiles.

    Source: dilated windows at several rates, Longformer (Beltagy et al. 2020) and LongNet (Ding et
    al. 2023); keys at doubling distances, LogSparse Transformer (Li et al. 2019).

    >>> print(dilated_sparse(0.17, Problem(4096), block=128, rates=(1, 4), taps=1).pattern)
    causal & (window(128, 0) | (causal | chunk(128)) >> -768 ^ (causal | chunk(128)) >> -896)
    """
    budget = Budget.checked(density, problem, block, causal, of)
    taps, sinks = whole("taps", taps, 1, 64), whole("sinks", sinks, 0)
    if not isinstance(rates, Sequence) or isinstance(rates, str) or not 1 <= len(rates) <= 64:
        raise StudioError(f"rates takes 1 to 64 whole numbers, such as (1, 2, 4, 8, 16), got {rates!r}")
    checked = [whole("a rate", rate, 1, 2**20) for rate in rates]
    multiples = sorted({k * rate for rate in checked for k in range(1, taps + 1)})
    kept = (sink(sinks),) if sinks else ()
    return spend("dilated_sparse", budget, lambda b: DilatedSparse(b, multiples, kept))
