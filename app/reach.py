"""How information spreads over layers: after how many of them each key block reaches each query block.

The figures are those of `pattern_studio.metrics.receptive_field`, which keeps no more than its sums; the
pictures need the layer of every pair. With a residual path nothing that has been reached is ever lost, so
one number a pair, the layer of its arrival, holds the relations after all layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pattern_studio as ps
from pattern_studio import Pattern, Problem, StudioError, lower
from pattern_studio.metrics import Depth, ReceptiveField, receptive_field

from .joining import Links, identity, tokens_in, unpacked

MAX_BLOCKS = 8192  # 64 MiB of arrivals
MAX_LAYERS = 64
NEVER = 255  # not within the layers
AT_ONCE = 2**24  # bytes of a temporary


@dataclass(frozen=True, eq=False)
class Spread:
    """Arrivals and figures of a stack of layers.

    - tokens: query rows, which are the keys, too; block: tokens of a block.
    - arrival: uint8 [blocks, blocks], after how many layers key block J reaches query block I: 0 for its own,
      NEVER where it does not.
    - figures: what `receptive_field` says of the same.
    """

    tokens: int
    block: int
    arrival: NDArray[np.uint8]
    figures: ReceptiveField

    @property
    def layers(self) -> int:
        return len(self.figures.depths)

    @cached_property
    def last_arrival(self) -> int:
        """The last layer at which anything arrives anywhere, 0 where nothing ever does."""
        return int(self.arrival[self.arrival != NEVER].max())

    def row(self, query: int) -> NDArray[np.uint8]:
        """Arrivals of every key block at the block of a query row, uint8 [blocks]."""
        return self.arrival[query // self.block]


@dataclass(frozen=True, eq=False)
class HopMap:
    """Arrivals pooled for a picture: uint8 [cells, cells], a cell being `size` x `size` tokens.

    `first`: of the first of a cell's pairs to be reached; `last`: of the last of those that the dense relation has,
    0 where it has none.
    """

    size: int
    first: NDArray[np.uint8]
    last: NDArray[np.uint8]


def assigned_layers(pattern: Pattern) -> int | None:
    """How many layers a text names with `layers()`, from layer 0 to the last; None where it names none.

    >>> assigned_layers(ps.parse("layers({0:4: causal, 4: dense})")), assigned_layers(ps.causal)
    (5, None)
    """
    last, open_ = -1, [pattern]  # without recursion: the tree may be deep
    while open_:
        node: Any = open_.pop()
        if isinstance(node, ps.layers):
            last = max(last, *(span if isinstance(span, int) else span[-1] for span, _ in node.cases))
        open_.extend(node.parts())
    return last + 1 if last >= 0 else None


def least_block(tokens: int) -> int:
    """The smallest power of two that makes few enough blocks of a length.

    >>> least_block(8192), least_block(8193), least_block(1_048_576)
    (1, 2, 128)
    """
    return 1 << max(0, -(-tokens // MAX_BLOCKS) - 1).bit_length()


def spread(pattern: Pattern, problem: Problem, layers: int, block: int) -> Spread:
    """What reaches what through `layers` layers of a pattern, exactly as `receptive_field` composes them.

    Raises:
        StudioError: too many layers or blocks for a picture, or what `receptive_field` refuses.

    >>> found = spread(ps.parse("causal & window(1, 0)"), ps.Problem(4), layers=2, block=1)
    >>> found.arrival.tolist()
    [[0, 255, 255, 255], [1, 0, 255, 255], [2, 1, 0, 255], [255, 2, 1, 0]]
    """
    if not 1 <= layers <= MAX_LAYERS:
        raise StudioError(f"expected 1 to {MAX_LAYERS} layers, got {layers}; choose as many")
    blocks = -(-problem.q_len // block)
    if blocks > MAX_BLOCKS:
        raise StudioError(
            f"expected at most {MAX_BLOCKS:,} blocks for a picture of all pairs, got {blocks:,}; choose blocks of "
            f"{least_block(problem.q_len):,} tokens or more"
        )
    alike = assigned_layers(pattern) is None
    # What the sums are about, and whether they are bounds, shows in one layer where all are alike.
    told = receptive_field(pattern, problem, layers=1 if alike else layers, block=block)
    arrival = np.full((blocks, blocks), NEVER, np.uint8)
    np.fill_diagonal(arrival, 0)
    field = identity(blocks)
    made: dict[tuple[Pattern, ...] | None, Links] = {}
    held = np.empty((layers, blocks), np.int64)  # tokens that have reached a query of each block
    for number in range(layers):
        key = None if alike else tuple(pattern.resolve(head, number) for head in range(problem.heads))
        if key not in made:
            made[key] = Links(lower(pattern, problem, block=block, layer=number))
        after = made[key].joined(field)
        fresh, field = after & ~field, after
        for begin in range(0, blocks, AT_ONCE // blocks + 1):
            rows = slice(begin, begin + AT_ONCE // blocks + 1)
            np.copyto(arrival[rows], np.uint8(number + 1), where=unpacked(fresh[rows], blocks))
        held[number:] = tokens_in(field, block, problem.q_len)
        if alike and not fresh.any():
            break  # nor will any further layer reach more
    return Spread(problem.q_len, block, arrival, _summed(told, held, problem.q_len, block))


def _summed(told: ReceptiveField, held: NDArray[np.int64], tokens: int, block: int) -> ReceptiveField:
    """The figures of all depths from the tokens that each block's queries hold, int64 [layers, blocks]."""
    width = np.minimum(block, tokens - np.arange(held.shape[1]) * block)  # tokens of each block
    pairs = int(np.cumsum(width) @ width if told.causal else tokens**2)
    depths = tuple(
        Depth(number, float(row @ width / pairs), float(row @ width / tokens), int(row.min()))
        for number, row in enumerate(held, 1)
    )
    return replace(told, depths=depths, hops=next((depth.layers for depth in depths if depth.coverage == 1), None))


def hop_map(found: Spread, most: int) -> HopMap:
    """Arrivals in at most `most` cells along an axis, a power of two of blocks each.

    >>> pooled = hop_map(spread(ps.parse("causal & window(1, 0)"), ps.Problem(4), layers=2, block=1), most=2)
    >>> pooled.size, pooled.first.tolist(), pooled.last.tolist()
    (2, [[0, 255], [1, 0]], [[1, 0], [255, 1]])
    """
    blocks = len(found.arrival)
    size = 1
    while -(-blocks // size) > most:
        size *= 2
    edges = np.arange(0, blocks, size)
    first, last = np.empty((2, len(edges), len(edges)), np.uint8)
    for row, edge in enumerate(edges):
        strip = found.arrival[edge : edge + size]
        first[row] = np.minimum.reduceat(strip.min(0), edges)
        if found.figures.causal:
            strip = np.tril(strip, int(edge))  # what lies ahead of a query is not waited for
        last[row] = np.maximum.reduceat(strip.max(0), edges)
    return HopMap(size * found.block, first, last)
