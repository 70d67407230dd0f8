"""diff: what two patterns keep that the other does not, exactly, from the lowered differences.

`a - b` and `b - a` are patterns themselves, so that counting them costs what lowering them costs; no
mask of the whole problem is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import StudioError
from .expr import Pattern
from .layout import BlockLayout, TileKind
from .lowering import lower
from .problem import Problem, whole

WORDS = {
    "equal": "a and b keep the same pairs",
    "subset": "every pair of a is in b, and b keeps more",
    "superset": "every pair of b is in a, and a keeps more",
    "crossing": "each keeps pairs that the other does not",
}


@dataclass(frozen=True)
class Sides:
    """Counts on two patterns: only in `a`, only in `b`, in both."""

    only_a: int
    only_b: int
    both: int

    @property
    def verdict(self) -> str:
        """equal, subset (a in b), superset (b in a) or crossing."""
        if self.only_a:
            return "crossing" if self.only_b else "superset"
        return "subset" if self.only_b else "equal"


@dataclass(frozen=True)
class Example:
    """The first key `j` that query row `row` (position `i`) of a head keeps on one `side` only, of `keys` such keys."""

    head: int
    row: int
    i: int
    j: int
    side: str
    keys: int

    def __str__(self) -> str:
        more = f", and {self.keys - 1:,} more keys of this row" if self.keys > 1 else ""
        return f"head {self.head}, query {self.i:,}: key {self.j:,} only in {self.side}{more}"


@dataclass(frozen=True)
class Diff:
    """Two patterns compared on one problem.

    `pairs` and `tiles` are summed over heads, `head_pairs` and `head_tiles` hold them for each head.
    A tile is only in `a` where it is active for `a` and not for `b`. `only_a` and `only_b` are the
    layouts of `a - b` and `b - a`, for drawing. `verdict` is about pairs on this problem: patterns
    that differ elsewhere can be equal here.
    """

    a: str
    b: str
    pairs: Sides
    tiles: Sides
    head_pairs: tuple[Sides, ...]
    head_tiles: tuple[Sides, ...]
    examples: tuple[Example, ...]
    only_a: BlockLayout
    only_b: BlockLayout

    @property
    def verdict(self) -> str:
        """equal, subset (a in b), superset (b in a) or crossing, by pairs over all heads."""
        return self.pairs.verdict

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold, without the layouts."""
        return {
            "a": self.a,
            "b": self.b,
            "verdict": self.verdict,
            "pairs": dict(vars(self.pairs)),
            "tiles": dict(vars(self.tiles)),
            "heads": [
                {"head": n, "verdict": p.verdict, "pairs": dict(vars(p)), "tiles": dict(vars(t))}
                for n, (p, t) in enumerate(zip(self.head_pairs, self.head_tiles, strict=True))
            ],
            "examples": [dict(vars(example)) for example in self.examples],
        }

    def __str__(self) -> str:
        lines = [f"a: {self.a}", f"b: {self.b}", f"{self.verdict}: {WORDS[self.verdict]}", ""]
        lines.append(f"{'':6}{'only in a':>18}{'only in b':>18}{'in both':>18}")
        for name, sides in (("pairs", self.pairs), ("tiles", self.tiles)):
            lines.append(f"{name:6}{sides.only_a:>18,}{sides.only_b:>18,}{sides.both:>18,}")
        if len({sides.verdict for sides in self.head_pairs}) > 1:
            lines += ["", *(f"head {n}: {sides.verdict}" for n, sides in enumerate(self.head_pairs))]
        return "\n".join([*lines, *(["", "first differences:"] if self.examples else []), *map(str, self.examples)])


def diff(
    a: Pattern,
    b: Pattern,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    *,
    layer: int | None = None,
    examples: int = 5,
) -> Diff:
    """Compare two patterns on one problem at one block size: pairs and tiles only in one, and where first.

    `layer` is needed by patterns that differ by layer; `examples` is the most differing rows that are
    named. Raises StudioError where a pattern and the problem do not fit.

    >>> import pattern_studio as ps
    >>> print(diff(ps.parse("causal & window(3, 0)"), ps.parse("causal & window(4, 0)"), ps.Problem(8), 4))
    a: causal & window(3, 0)
    b: causal & window(4, 0)
    subset: every pair of a is in b, and b keeps more
    <BLANKLINE>
                   only in a         only in b           in both
    pairs                  0                 4                26
    tiles                  0                 0                 3
    <BLANKLINE>
    first differences:
    head 0, query 4: key 0 only in b
    head 0, query 5: key 1 only in b
    head 0, query 6: key 2 only in b
    head 0, query 7: key 3 only in b
    """
    for pattern in (a, b):
        if not isinstance(pattern, Pattern):
            raise StudioError(f"diff() takes two Patterns, got {type(pattern).__name__}; read text with parse()")
    examples = whole("the number of examples", examples, 0)
    left, right, only_a, only_b = (lower(p, problem, block=block, layer=layer) for p in (a, b, a - b, b - a))
    pairs_a, pairs_only_a, pairs_only_b = (_pairs(layout) for layout in (left, only_a, only_b))
    pairs = tuple(Sides(x, y, total - x) for x, y, total in zip(pairs_only_a, pairs_only_b, pairs_a, strict=True))
    tiles = _tiles(left, right)
    found = sorted([*_examples(only_a, "a", examples), *_examples(only_b, "b", examples)], key=lambda e: e.row)
    return Diff(str(a), str(b), _sum(pairs), _sum(tiles), pairs, tiles, tuple(found[:examples]), only_a, only_b)


def _sum(sides: tuple[Sides, ...]) -> Sides:
    return Sides(sum(s.only_a for s in sides), sum(s.only_b for s in sides), sum(s.both for s in sides))


def _pairs(layout: BlockLayout) -> list[int]:
    """Pairs of each head."""
    return layout.group_row_counts.sum(1)[layout.head_group].tolist()


def _tiles(a: BlockLayout, b: BlockLayout) -> tuple[Sides, ...]:
    """Active tiles of each head on either side; heads with equal groups are counted once."""
    known: dict[tuple[int, int], Sides] = {}
    heads = list(zip(a.head_group.tolist(), b.head_group.tolist(), strict=True))
    for pair in heads:
        if pair not in known:
            (start_a, stop_a), (start_b, stop_b) = _stretches(a, pair[0]), _stretches(b, pair[1])
            below = np.r_[0, np.cumsum(stop_b - start_b)]

            def covered(at: NDArray, start=start_b, stop=stop_b, below=below) -> NDArray:
                """Tiles of b before each place."""
                n = np.searchsorted(start, at, "right")
                return below[n] - np.where(n > 0, np.maximum(np.r_[0, stop][n] - at, 0), 0)

            both = int((covered(stop_a) - covered(start_a)).sum())
            known[pair] = Sides(int((stop_a - start_a).sum()) - both, int(below[-1]) - both, both)
    return tuple(known[pair] for pair in heads)


def _stretches(layout: BlockLayout, group: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and stop place of each run of a group, on one axis of tiles for all query blocks."""
    rows = layout.rows
    span = slice(rows.indptr[group * layout.q_blocks], rows.indptr[(group + 1) * layout.q_blocks])
    start = (rows.line[span] - group * layout.q_blocks) * layout.kv_blocks + rows.start[span]
    return start, start + rows.length[span]


def _examples(layout: BlockLayout, side: str, most: int) -> Iterator[Example]:
    """The first rows of each head that keep anything."""
    counts = layout.group_row_counts
    first = [np.flatnonzero(line)[:most] for line in counts]
    for head, group in enumerate(layout.head_group.tolist()):
        for row in first[group].tolist():
            i = row + layout.problem.offset
            yield Example(head, row, i, _first_key(layout, group, row), side, int(counts[group, row]))


def _first_key(layout: BlockLayout, group: int, row: int) -> int:
    """The first key of a row that has one."""
    rows, block_k = layout.rows, layout.block[1]
    line, within = group * layout.q_blocks + row // layout.block[0], row % layout.block[0]
    for n in range(rows.indptr[line], rows.indptr[line + 1]):
        first, ref = int(rows.start[n]) * block_k, rows.ref[n]
        if rows.kind[n] == TileKind.FULL:
            return first
        if rows.kind[n] == TileKind.BAND:
            lo, hi = (layout.bands[ref] + row + layout.problem.offset).tolist()
            stop = min(first + int(rows.length[n]) * block_k, layout.problem.kv_len, hi + 1)
            if max(first, lo) < stop:
                return max(first, lo)
        elif layout.masks[ref, within].any():
            return first + int(layout.masks[ref, within].argmax())
    raise AssertionError(f"row {row} has no key")
