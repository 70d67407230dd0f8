"""docs: packed documents that do not see each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import SOME, UNBOUNDED, Columns, Ints, Scope, Strips, covered, ragged, shifted, sort
from ..errors import StudioError
from ..expr import ATOM, Pattern, wrapped
from ..leaf import Leaf


@dataclass(frozen=True)
class Docs(Leaf):
    """A query sees the keys of its own document; the problem gives the document lengths.

    Predicate: `i` and `j` lie in the same document. `p & docs` keeps absolute positions;
    `p.within(docs)` counts positions from each document's start.

    Source: sequence packing, as in FlashAttention's variable-length interface.

    >>> import pattern_studio as ps
    >>> ps.lower(ps.causal & ps.docs, q_len=16, docs=(3, 5, 1, 0, 7), block=4).pairs
    50
    """

    name: ClassVar[str] = "docs"

    def around(self, child: Pattern) -> Pattern:
        """The child inside each document."""
        return Within(child)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        at_i, at_j = _document(i, scope), _document(j, scope)
        return (at_i == at_j) & (at_i >= 0)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        strip, start, stop, first, last = _pieces(strips, scope)
        return covered(strips, strip, start, stop, last - first + 1)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [_place(row, key, shape, scope)[0]]

    def transposed(self) -> Pattern:
        return self


@dataclass(frozen=True)
class Within(Pattern):
    """The child inside each document, on positions counted from the document's start."""

    child: Pattern

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        starts, lengths = _bounds(scope)
        at_i, at_j = _document(i, scope), _document(j, scope)
        inner = Scope(lengths[at_i], None, scope.block)
        return (at_i == at_j) & (at_i >= 0) & self.child.allows(i - starts[at_i], j - starts[at_j], inner)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        strip, start, stop, first, last = _pieces(strips, scope)
        key_first = np.maximum(strips.key_first[strip], start)
        key_stop = np.minimum(strips.key_stop[strip], stop)
        some = key_first < key_stop
        strip, start, stop, first, last = (a[some] for a in (strip, start, stop, first, last))
        local = Strips(first - start, last - start, key_first[some] - start, key_stop[some] - start)
        runs = self.child.columns(local, Scope(stop - start, None, scope.block))
        runs = shifted(runs, start[runs.strip], start[runs.strip])
        # A piece speaks for its own rows: over the whole strip it is SOME unless it is the whole strip.
        whole = local.height[runs.strip] == strips.height[strip[runs.strip]]
        free = np.where(whole, runs.lo, -UNBOUNDED), np.where(whole, runs.hi, UNBOUNDED)
        state = np.where(whole, runs.state, SOME).astype(np.uint8)
        return sort(replace(runs, strip=strip[runs.strip], state=state, lo=free[0], hi=free[1]))

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        place, document = _place(row, key, shape, scope)
        starts, lengths = _bounds(scope)
        inner = Scope(lengths[document], None, scope.block)
        child = self.child.signature(row - starts[document], key - starts[document], shape, inner)
        return [place, *(np.where(place == 1, part, 0) for part in child)]

    def transposed(self) -> Pattern:
        return Within(self.child.transposed())

    def parts(self) -> tuple[Pattern, ...]:
        return (self.child,)

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return Within(change(self.child))

    def __str__(self) -> str:
        return f"{wrapped(self.child, ATOM)}.within(docs)"


def _ends(scope: Scope) -> NDArray[np.int64]:
    if scope.doc_ends is None:
        raise StudioError("docs needs the document lengths: give docs=(length, length, ...) when lowering")
    return np.array(scope.doc_ends, np.int64)


def _bounds(scope: Scope) -> tuple[Ints, Ints]:
    """Start and length of each document, and one empty document more for positions in none."""
    ends = _ends(scope)
    starts = np.r_[0, ends[:-1]] if len(ends) else ends
    return np.r_[starts, 0], np.r_[ends - starts, 0]


def _document(position: Ints, scope: Scope) -> Ints:
    """The document of each position, -1 outside all."""
    ends = _ends(scope)
    found = np.searchsorted(ends, position, "right")
    return np.where((np.asarray(position) >= 0) & (found < len(ends)), found, -1)


def _pieces(strips: Strips, scope: Scope) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Each strip cut at document borders: strip, document start and stop, first and last row."""
    starts, lengths = _bounds(scope)
    ends = _ends(scope)
    low = np.searchsorted(ends, np.maximum(strips.first, 0), "right")
    high = np.searchsorted(ends, strips.last, "right") + 1
    strip, rank = ragged(np.maximum(np.minimum(high, len(ends)) - low, 0))
    document = low[strip] + rank
    start, stop = starts[document], starts[document] + lengths[document]
    first, last = np.maximum(strips.first[strip], start), np.minimum(strips.last[strip], stop - 1)
    some = first <= last
    return strip[some], start[some], stop[some], first[some], last[some]


def _place(row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> tuple[Ints, Ints]:
    """How a tile lies to the documents: 1 inside one, 0 across two, else a number of its own; and the document."""
    first, last = _document(row, scope), _document(row + shape[0] - 1, scope)
    key_first, key_last = _document(key, scope), _document(key + shape[1] - 1, scope)
    simple = (first == last) & (key_first == key_last) & (first >= 0) & (key_first >= 0)
    return np.where(simple, first == key_first, 2 + np.arange(len(row))), np.where(simple, first, -1)


PATTERN = Docs()
