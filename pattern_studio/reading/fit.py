"""Named primitives for a mask: a frame (causal, documents), something inside it, whole rows and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import numpy as np

from ..columns import Scope
from ..expr import And, Pattern
from ..patterns import PRIMITIVES
from .cells import Bools, Cells, Inside, Ints
from .relative import relative

CAUSAL, DENSE, DOCS, EMPTY, chunk, globals_, sink, vertical = (
    PRIMITIVES[word] for word in ("causal", "dense", "docs", "empty", "chunk", "globals", "sink", "vertical")
)


@dataclass(frozen=True)
class Fit:
    """A pattern that shows the mask, and the document ends (in tokens) that it needs, if any."""

    pattern: Pattern
    doc_ends: tuple[int, ...] | None = None


@dataclass(frozen=True)
class _Frame:
    """What a mask lies in, as patterns to be met all."""

    parts: tuple[Pattern, ...]
    cells: Cells

    @property
    def causal(self) -> bool:
        return CAUSAL in self.parts

    def inside(self, i, j) -> Bools:
        found = np.ones(np.broadcast_shapes(i.shape, j.shape), bool)
        for part in self.parts:
            found &= self.cells.of(part)(i, j)
        return found

    def holding(self, pattern: Pattern) -> Pattern:
        """The pattern in this frame."""
        unit = self.cells.unit
        # Of tiles, those up to the query's own: the rest of the diagonal tile belongs to it.
        frame = [part | chunk(unit) if part == CAUSAL and unit > 1 else part for part in self.parts]
        own = pattern.children if isinstance(pattern, And) else () if pattern == DENSE and frame else (pattern,)
        return reduce(and_, [*(part for part in frame if part not in own), *own])


def fit(cells: Cells) -> Fit | None:
    """The simplest named pattern that shows a mask with allowed cells, or None."""
    for frame in _frames(cells):
        if not cells.within(frame.inside):
            continue
        for candidate in _candidates(frame):
            pattern = frame.holding(candidate)
            if frame.cells.shows(pattern):
                return Fit(pattern, frame.cells.scope.doc_ends if DOCS in frame.parts else None)
    return None


def _frames(cells: Cells) -> Iterator[_Frame]:
    # Window and causal are written together; the tiles of a causal layout are simpler without a frame.
    for parts in ((CAUSAL,), ()) if cells.unit == 1 else ((), (CAUSAL,)):
        yield _Frame(parts, cells)
    rows, keys = cells.mask.shape
    if cells.unit == 1 and cells.first == 0 and rows == keys:
        borders = cells.borders(lambda i, j: np.ones((), bool))
        if len(borders):
            within = replace(cells, scope=Scope(keys, (*borders.tolist(), keys), cells.scope.block))
            yield _Frame((CAUSAL, DOCS), within)
            yield _Frame((DOCS,), within)


def _candidates(frame: _Frame) -> Iterator[Pattern]:
    """Patterns to try in a frame, simple ones first; not all of them fit."""
    cells = frame.cells
    yield DENSE
    kept, dropped = cells.diagonals(frame.inside)
    whole = np.setdiff1d(kept, dropped)
    if len(whole) == len(kept):
        yield from relative(kept, dropped, cells.unit, frame.causal)
    yield from _chunks(cells, frame.inside)
    rows, keys = cells.lines(frame.inside)
    if not rows.any() and not keys.any():
        return

    def counts(i, j) -> Bools:
        return frame.inside(i, j) & ~rows[i - cells.first] & ~keys[j]

    for inner in (*_beside(frame, counts, whole), *_chunks(cells, counts), EMPTY):
        lines = _lines(cells, inner, rows, keys)
        if lines is not None:
            yield lines if inner is EMPTY else inner | lines


def _beside(frame: _Frame, counts: Inside, whole: Ints) -> Iterator[Pattern]:
    """Patterns of diagonals that fit the cells outside whole rows and keys."""
    kept, dropped = frame.cells.diagonals(counts)
    if len(np.intersect1d(kept, dropped)):
        return
    # Whole diagonals next to those that must be kept make the pattern simpler, and lose nothing.
    either = np.union1d(kept, whole)
    runs = np.split(either, np.flatnonzero(np.diff(either) > 1) + 1)
    wider = [run for run in runs if len(np.intersect1d(run, kept))]
    yield from relative(np.concatenate([*wider, kept[:0]]), dropped, frame.cells.unit, frame.causal)


def _chunks(cells: Cells, counts: Inside) -> Iterator[Pattern]:
    """Chunks whose borders no counting pair crosses."""
    borders = cells.borders(counts)
    if not len(borders):
        return
    # All borders together give the size away, or else, where few cells count, the longest chunk does.
    longest = int(np.diff(np.r_[0, borders, cells.mask.shape[1]]).max())
    for size in dict.fromkeys((int(np.gcd.reduce(borders)), longest)):
        yield chunk(size * cells.unit)


def _lines(cells: Cells, inner: Pattern, rows: Bools, keys: Bools) -> Pattern | None:
    """The whole rows and keys that are allowed beyond `inner`, as few as will do; None where none are."""
    says = cells.of(inner)
    need_row, need_key = np.zeros(len(rows), bool), np.zeros(len(keys), bool)
    for again in (False, True):
        for part, i, j in cells.strips():
            needed = cells.mask[part] & ~says(i, j)
            if again:  # what rows and keys that are needed anyway do not cover, keys cover
                need_key |= (needed & ~need_row[part, None] & ~need_key).any(0)
            else:
                need_row[part] = (needed & ~keys).any(1)
                need_key |= (needed & ~rows[part, None]).any(0)
    if not need_row.any() and not need_key.any():
        return None
    if cells.first < 0 and need_row[: -cells.first].any():
        return None  # the language has no name for rows before position 0
    if need_row.any():
        return globals_(rows=_named(need_row, cells.first, cells.unit), cols=_named(need_key, 0, cells.unit))
    stop = len(need_key) - int(need_key[::-1].argmax())
    if keys[:stop].all():  # also those before the first one that is needed
        return sink(stop * cells.unit)
    return vertical(_named(need_key, 0, cells.unit))


def _named(line: Bools, first: int, unit: int) -> tuple[range, ...]:
    """Chosen cells as ranges of token positions."""
    edges = np.flatnonzero(np.diff(np.r_[False, line, False])) + first
    return tuple(range(a * unit, b * unit) for a, b in edges.reshape(-1, 2).tolist())
