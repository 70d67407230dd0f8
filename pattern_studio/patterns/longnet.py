"""longnet: dilated segments at several scales."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged, sweep
from ..errors import StudioError
from ..expr import Pattern
from ..kleene import either
from ..leaf import Leaf
from ..problem import whole

MAX_SCALES = 64  # each one is a pattern of its own


@dataclass(frozen=True)
class Longnet(Leaf):
    """Inside segments of `w` tokens every `r`-th token sees every `r`-th: one pair (w, r) for each scale.

    Predicate: for one of the pairs `w, r` of `segments` and `rates`: `i // w == j // w`, and the
    places in the segment agree with the head, `i % w % r == j % w % r == offset % r`.

    The paper's head `h` has `offset=h`. Its rule, section 2.2: a segment keeps the rows
    `s, s + r, s + 2 r, ...` with `s = h % r`, as queries, keys and values; the outputs of the scales
    are mixed by their softmax denominators. As a pattern a pair counts once, where the paper's
    mixture counts it once for each scale that it is part of. Queries that no scale selects see nothing.

    Source: LongNet (Ding et al. 2023).

    >>> [j for j in range(8) if Longnet((4, 8), (1, 2)).allows(6, j)]
    [0, 2, 4, 5, 6, 7]
    """

    segments: tuple[int, ...]
    rates: tuple[int, ...]
    offset: int = field(default=0, kw_only=True)
    name: ClassVar[str] = "longnet"

    def __post_init__(self) -> None:
        for option, what in (("segments", "a segment of longnet"), ("rates", "a rate of longnet")):
            given = getattr(self, option)
            values = given if isinstance(given, (tuple, list)) else (given,)
            object.__setattr__(self, option, tuple(whole(what, value, 1) for value in values))
        if not 1 <= len(self.segments) == len(self.rates) <= MAX_SCALES:
            raise StudioError(
                f"longnet takes 1 to {MAX_SCALES} segment lengths and one rate for each, got {len(self.segments)} and "
                f"{len(self.rates)}; write longnet((2048, 4096), (1, 2))"
            )
        self.check("offset", 0)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        found = np.zeros(np.broadcast_shapes(np.shape(i), np.shape(j)), bool)
        for w, r in zip(self.segments, self.rates, strict=True):
            query, key = (np.asarray(p) % w % r == self.offset % r for p in (i, j))
            found |= query & key & (np.floor_divide(i, w) == np.floor_divide(j, w))
        return found

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        parts = [self._scale(strips, scope, w, r) for w, r in zip(self.segments, self.rates, strict=True)]
        return parts[0] if len(parts) == 1 else sweep(strips, parts, lambda *values: reduce(either, values))

    def _scale(self, strips: Strips, scope: Scope, w: int, r: int) -> Columns:
        low, high = strips.first // w, strips.last // w
        piece, rank = ragged(high - low + 1)
        start = (low[piece] + rank) * w
        first = np.maximum(strips.first[piece], start) - start
        last = np.minimum(strips.last[piece], start + w - 1) - start
        # Places s, s + r, ... up to and including a place: its number of chosen rows.
        s = self.offset % r
        rows = (last - s) // r - (first - 1 - s) // r
        chosen = np.flatnonzero((rows > 0) & (s < w))
        piece, start, rows = piece[chosen], start[chosen], rows[chosen]
        key_first, key_stop = strips.key_first[piece], strips.key_stop[piece]
        one = np.maximum(-((start + s - key_first) // r), 0)
        end = np.minimum((key_stop - 1 - start - s) // r, (w - 1 - s) // r)
        # A tile that r is smaller than holds a chosen key anyway: there the stretch does for its keys.
        coarse = (strips.height[piece] > 1) & (r > 1) & (r <= (scope.block or (1, 1))[1])
        coarse |= r == 1
        count = np.where(end < one, 0, np.where(coarse, 1, end - one + 1))
        owner, rank = ragged(count)
        begin = start[owner] + s + (one[owner] + rank) * r
        stop = np.where(coarse[owner], start[owner] + s + end[owner] * r, begin) + 1
        # In a stretch of which every r-th key is kept no key may count as seen by all rows.
        seen_by = np.where((r > 1) & (stop - begin > 1), np.minimum(rows[owner], 1), rows[owner])
        return covered(strips, piece[owner], begin, stop, seen_by)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        parts = []
        for w, r in zip(self.segments, self.rates, strict=True):
            apart = key // w - row // w
            single = (row % w + shape[0] <= w) & (key % w + shape[1] <= w)
            here = [np.where(apart == 0, 0, -1), row % w % r, key % w % r]
            reach = max(shape) // w + 2
            cut = [np.clip(apart, -reach, reach) + reach + 1, row % w, key % w]
            parts += [np.where(single, np.where(apart == 0, h, -1), c) for h, c in zip(here, cut, strict=True)]
        return parts

    def transposed(self) -> Pattern:
        return self


PATTERN = Longnet
