"""Reading back files that say stretches of keys by query row: they become a layout of single tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import ragged
from ..errors import StudioError
from ..layout import BlockLayout, Runs, TileKind
from ..problem import Problem

MAX_STRETCHES = 2**24  # over all heads and rows: about 1 GB while they are sorted

Ints = NDArray[np.int64]


def int32(parts: dict[str, NDArray], name: str, shape: tuple[int | None, ...]) -> Ints:
    """An array of a file, int32 of a shape in which None is any number, as int64; else a StudioError names both."""
    found = parts.get(name, np.zeros(0))
    fits = found.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, found.shape, strict=True))
    if found.dtype != np.int32 or not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        got = ", ".join(map(str, found.shape))
        raise StudioError(f"expected {name} int32 [{wanted}], got {found.dtype} [{got}]; export it again")
    return found.astype(np.int64)


def listed(counts: Ints, table: Ints, name: str) -> tuple[Ints, Ints]:
    """Entries of a padded table [lines, most] by their lines: (line, entry), `counts[line]` of each."""
    if (counts < 0).any() or (counts > table.shape[1]).any():
        raise StudioError(f"expected counts of {name} between 0 and {table.shape[1]}; export it again")
    line, rank = ragged(counts)
    return line, table[line, rank]


def by_rows(rows: Ints, height: Ints) -> tuple[Ints, Ints]:
    """Which piece each of its rows belongs to, and the row: pieces are `height` rows from `rows` on."""
    if int(height.sum()) > MAX_STRETCHES:
        raise StudioError(f"the file means {int(height.sum()):,} stretches of keys, at most {MAX_STRETCHES:,} are read")
    piece, rank = ragged(height)
    return piece, rows[piece] + rank


def token_layout(problem: Problem, groups: NDArray[np.int32], line: Ints, start: Ints, stop: Ints) -> BlockLayout:
    """The layout of blocks 1 x 1 whose line `group * q_len + row` sees keys `start` to `stop`, which must not overlap.

    Raises:
        StudioError: rows or keys that the problem hasn't, or stretches that overlap.

    >>> one = np.array([0])
    >>> token_layout(Problem(1, 4), np.zeros(1, np.int32), one, one + 1, one + 3).expand(0).astype(int).tolist()
    [[0, 1, 1, 0]]
    """
    lines = (int(groups.max(initial=0)) + 1) * problem.q_len
    inside = (line >= 0) & (line < lines) & (start >= 0) & (start <= stop) & (stop <= problem.kv_len)
    if not inside.all():
        raise StudioError("expected rows and keys of the file's problem, got some outside; export it again")
    some = start < stop
    line, start, stop = line[some], start[some], stop[some]
    order = np.lexsort((start, line))
    line, start, stop = line[order], start[order], stop[order]
    if ((line[1:] == line[:-1]) & (start[1:] < stop[:-1])).any():
        raise StudioError("expected stretches of keys that do not overlap; export it again")
    kind, ref = np.full(len(line), TileKind.FULL), np.zeros(len(line), np.int64)
    runs = Runs.from_sorted(lines, line, start, stop, kind, ref)
    return BlockLayout(problem, (1, 1), groups, runs, np.zeros((0, 2), np.int64), np.zeros((0, 1), np.uint8)).validate()
