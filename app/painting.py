"""What painting on the map writes into the text: a rectangle as `rect`, any other shape as `blocks`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pattern_studio as ps
from pattern_studio import Pattern, Problem
from pattern_studio.plot import Viewport

Units = Collection[tuple[int, int]]  # (row, key), counted in units


def boxed(pattern: Pattern, box: Viewport, problem: Problem, add: bool) -> Pattern:
    """The pattern with a rectangle of query rows and keys added or taken away.

    >>> str(boxed(ps.causal, Viewport(0, 64, 64, 128), ps.Problem(128), add=True))
    'causal | rect(range(0, 64), range(64, 128))'
    """
    rect = _rect(box.row_start, box.row_stop, box.key_start, box.key_stop, problem.offset)
    return pattern | rect if add else pattern - rect


def drawn(pattern: Pattern, units: Units, size: tuple[int, int], problem: Problem, add: bool) -> Pattern:
    """The pattern with units of `size` query rows and keys added or taken away.

    A rectangle is written as `rect`, another shape as `blocks` unless rectangles are shorter. Blocks that the text
    ends in grow, so that drawing on and on makes no chain of them.

    >>> str(drawn(ps.causal, {(0, 1), (1, 1), (1, 2)}, (64, 64), ps.Problem(256), add=True))
    'causal | blocks((64, 64), ((1,), (range(1, 3),)))'
    """
    rest, before = _last_blocks(pattern, size, add)
    rows, keys = size
    rects = list(_rects(units, size, problem))
    shapes = [_union(rects)]
    if problem.offset % rows == 0 and (before or len(rects) > 1):
        at = {(row + problem.offset // rows, key) for row, key in units} | before
        table = [sorted(key for row, key in at if row == n) for n in range(1 + max(row for row, _ in at))]
        blocks = ps.blocks((rows, keys), tuple(_runs(line) for line in table))
        if before:
            return rest | blocks if add else rest - blocks
        shapes.append(blocks)
    shape = min(shapes, key=lambda one: len(str(one)))
    return pattern | shape if add else pattern - shape


def _last_blocks(pattern: Pattern, size: tuple[int, int], add: bool) -> tuple[Pattern, set[tuple[int, int]]]:
    """What stands before the blocks of this size that a text ends in, and those blocks; none: the whole pattern."""
    parts = pattern.parts()
    if type(pattern).__name__ != ("Or" if add else "And") or not parts:
        return pattern, set()
    last = parts[-1] if add else (parts[-1].parts() or (None,))[0] if type(parts[-1]).__name__ == "Not" else None
    if getattr(last, "name", "") != "blocks" or last.block != size:  # type: ignore[union-attr]
        return pattern, set()
    found = {
        (n, key)
        for n, row in enumerate(last.rows)  # type: ignore[union-attr]
        for span in row
        for key in (span if isinstance(span, range) else (span,))
    }
    rest = parts[0]
    for part in parts[1:-1]:
        rest = rest | part if add else rest & part
    return rest, found


def _rects(units: Units, size: tuple[int, int], problem: Problem) -> Iterable[Pattern]:
    """Rectangles that are the units together: runs of keys, as tall as neighbouring rows share them."""
    open_: dict[tuple[int, int], int] = {}  # run of keys -> the row that it began in
    for row in range(min(units)[0], max(units)[0] + 2):
        runs = {(run.start, run.stop) for run in _ranges(sorted(key for at, key in units if at == row))}
        for run in [run for run in open_ if run not in runs]:
            first = open_.pop(run) * size[0]
            keys = (run[0] * size[1], min(run[1] * size[1], problem.kv_len))
            yield _rect(first, min(row * size[0], problem.q_len), *keys, problem.offset)
        for run in runs:
            open_.setdefault(run, row)


def _rect(row_start: int, row_stop: int, key_start: int, key_stop: int, offset: int) -> Pattern:
    """Rectangles of the language are absolute positions, boxes are query rows."""
    return ps.rect(range(row_start + offset, row_stop + offset), range(key_start, key_stop))


def _union(parts: Iterable[Pattern]) -> Pattern:
    first, *others = parts
    for part in others:
        first = first | part
    return first


def _ranges(numbers: list[int]) -> list[range]:
    runs: list[range] = []
    for n in numbers:
        if runs and runs[-1].stop == n:
            runs[-1] = range(runs[-1].start, n + 1)
        else:
            runs.append(range(n, n + 1))
    return runs


def _runs(numbers: list[int]) -> tuple[int | range, ...]:
    return tuple(run.start if len(run) == 1 else run for run in _ranges(numbers))
