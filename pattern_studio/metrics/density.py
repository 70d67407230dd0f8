"""density: the fractions and tile counts of a pattern, what is kept without looking at any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..expr import Pattern
from ..layout import BlockLayout, TileKind
from ..lowering import lower
from ..problem import Problem
from .base import Metric
from .layouts import lower_causal_part, single_head

if TYPE_CHECKING:
    from .subject import Subject


@dataclass(frozen=True)
class DensityFigures:
    """Fractions that are kept, each in [0, 1]; None where there is nothing to take a fraction of.

    - token: allowed pairs / all pairs.
    - token_of_causal: allowed pairs with `j <= i` / pairs with `j <= i`.
    - block: active tiles / tiles.
    """

    token: float | None
    token_of_causal: float | None
    block: float | None


@dataclass(frozen=True)
class TileCounts:
    """Tiles summed over heads; active = full + partial."""

    total: int
    active: int
    full: int
    partial: int


@dataclass(frozen=True)
class LayoutStats:
    """What a pattern keeps on one problem at one block size. Counts are summed over heads.

    - pairs: allowed (query, key) pairs.
    - block_efficiency: allowed pairs / pairs inside active tiles, the useful share of what a block
      kernel computes; 1 is best; None when no tile is active.
    - empty_rows: query rows without an allowed key.
    """

    pattern: str
    hash: str
    q_len: int
    kv_len: int
    q_offset: int
    block: tuple[int, int]
    heads: int
    pairs: int
    density: DensityFigures
    tiles: TileCounts
    block_efficiency: float | None
    empty_rows: int

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return {
            **vars(self),
            "block": list(self.block),
            "density": dict(vars(self.density)),
            "tiles": dict(vars(self.tiles)),
        }


def layout_stats(
    pattern: Pattern, problem: Problem, block: int | tuple[int, int] = 128, layer: int | None = None
) -> LayoutStats:
    """A pattern's densities and tiles on a problem, exactly, in time proportional to its key runs.

    Nothing is ever NaN: a fraction of nothing is None. Raises StudioError where the pattern does
    not fit the problem.

    Source: the words of FlexAttention's BlockMask (full and partial tiles), with every density
    labelled by what it is a fraction of.

    >>> import pattern_studio as ps
    >>> stats = layout_stats(ps.parse("causal & window(1, 0)"), ps.Problem(q_len=4), block=2)
    >>> stats.pairs, stats.density
    (7, DensityFigures(token=0.4375, token_of_causal=0.7, block=0.75))
    >>> stats.tiles, stats.block_efficiency
    (TileCounts(total=4, active=3, full=0, partial=3), 0.5833333333333334)
    """
    return stats_of_layout(pattern, lower(pattern, problem, block=block, layer=layer), layer)


def stats_of_layout(pattern: Pattern, layout: BlockLayout, layer: int | None = None) -> LayoutStats:
    """The same of a pattern that has been lowered already, for this layer, to this layout.

    >>> from pattern_studio import parse
    >>> pattern = parse("causal & window(1, 0)")
    >>> stats_of_layout(pattern, lower(pattern, q_len=4, block=2)) == layout_stats(pattern, Problem(4), block=2)
    True
    """
    return LayoutStats(
        pattern=str(pattern),
        hash=pattern.hash,
        q_len=layout.problem.q_len,
        kv_len=layout.problem.kv_len,
        q_offset=layout.problem.offset,
        block=layout.block,
        heads=layout.problem.heads,
        **_figures(_counts(layout, lower_causal_part(pattern, layout, layer))),
    )


class Density(Metric):
    """The figures of `layout_stats` beside a capture's, and `pairs_outside_dense`.

    All are of the pattern's own layout, apart from these two: `pairs_outside_dense` counts allowed
    pairs that the capture's own dense mask excludes and that therefore keep nothing, and `empty_rows`
    the rows that keep no key inside that mask. Over heads and layers counts are summed and fractions
    taken of the sums.

    Keys: `pairs`, `pairs_outside_dense`, `density` (DensityFigures), `tiles` (TileCounts),
    `block_efficiency`, `empty_rows`.
    """

    def __init__(self, subject: Subject) -> None:
        alike: dict[tuple[int, int], np.ndarray] = {}
        each = []
        for head, groups in enumerate(zip(subject.layout.head_group, subject.causal_part.head_group, strict=True)):
            if groups not in alike:
                layout, causal_part = single_head(subject.layout, head), single_head(subject.causal_part, head)
                kept = causal_part if subject.capture.causal else layout
                alike[groups] = np.array(
                    [*_counts(layout, causal_part)[:-1], kept.empty_rows, layout.pairs - kept.pairs]
                )
            each.append(alike[groups])
        self.counts = np.stack(each)  # int64 [heads, counts and, last, pairs outside the dense mask]

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return _with_outside(self.counts[heads].sum(0).tolist())

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        return _with_outside(np.concatenate([part.counts for part in layers]).sum(0).tolist())


def _with_outside(counts: list[int]) -> dict[str, Any]:
    return {**_figures(tuple(counts[:-1])), "pairs_outside_dense": counts[-1]}


def _counts(layout: BlockLayout, causal_part: BlockLayout) -> tuple[int, ...]:
    """All that fractions are made of, as counts that add up over heads."""
    heads, problem = layout.problem.heads, layout.problem
    return (
        layout.pairs,
        heads * problem.q_len * problem.kv_len,
        causal_part.pairs,
        heads * _causal_pairs(problem),
        layout.tiles(),
        layout.tiles(TileKind.FULL),
        heads * layout.q_blocks * layout.kv_blocks,
        layout.tile_pairs,
        layout.empty_rows,
    )


def _figures(counts: tuple[int, ...]) -> dict[str, Any]:
    pairs, all_pairs, causal_pairs, all_causal, active, full, tiles, tile_pairs, empty_rows = counts
    return {
        "pairs": pairs,
        "density": DensityFigures(
            _fraction(pairs, all_pairs), _fraction(causal_pairs, all_causal), _fraction(active, tiles)
        ),
        "tiles": TileCounts(tiles, active, full, active - full),
        "block_efficiency": _fraction(pairs, tile_pairs),
        "empty_rows": empty_rows,
    }


def _fraction(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _causal_pairs(problem: Problem) -> int:
    """Pairs of one head with `j <= i`: rows before key 0 see none, rows past the last key see all."""
    first, stop, kv_len = problem.offset, problem.offset + problem.q_len, problem.kv_len
    low, high = max(first, 0), min(stop, kv_len)
    growing = (low + 1 + high) * (high - low) // 2 if high > low else 0
    return growing + max(stop - max(first, kv_len), 0) * kv_len


METRIC = Density
