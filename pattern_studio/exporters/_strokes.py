"""Runs of tiles as strokes: a short description of structured patterns, however many rows they have.

A stroke `(row, rows, start, step, length, growth, ref)` says that row `row + n`, for each `n < rows`, holds the tiles
from `start + n * step`, `length + n * growth` of them. A window is a few strokes, whatever the sequence length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..layout import Runs

WIDTH = 110  # characters of a line of literals


class Stroke(NamedTuple):
    """Runs of neighbouring rows whose start and length change evenly from row to row."""

    row: int
    rows: int
    start: int
    step: int
    length: int
    growth: int
    ref: int


def strokes(runs: Runs, first: int, lines: int) -> list[Stroke]:
    """Strokes of lines `first : first + lines` (counted from `first`), which together hold every run once.

    Runs of neighbouring rows are matched by their rank in the row, as long as the rows have equally many.

    >>> import pattern_studio as ps
    >>> strokes(ps.lower(ps.causal - ps.window(0, 0), q_len=5, block=1).rows, 0, 5)
    [Stroke(row=1, rows=4, start=0, step=0, length=1, growth=1, ref=0)]
    """
    found: list[Stroke] = []
    open_: list[Stroke] = []
    for row in range(lines):
        span = slice(runs.indptr[first + row], runs.indptr[first + row + 1])
        fields = (runs.start[span].tolist(), runs.length[span].tolist(), runs.ref[span].tolist())
        here = [Stroke(row, 1, start, 0, length, 0, ref) for start, length, ref in zip(*fields, strict=True)]
        if len(here) == len(open_):
            pairs = [_joined(old, new) for old, new in zip(open_, here, strict=True)]
            found += [old for old, pair in zip(open_, pairs, strict=True) if pair is None]
            open_ = [new if pair is None else pair for new, pair in zip(here, pairs, strict=True)]
        else:
            found += open_
            open_ = here
    return sorted([*found, *open_])


def _joined(old: Stroke, new: Stroke) -> Stroke | None:
    """The stroke that holds both, where `new` goes on evenly."""
    step, growth = (
        new.start - _last(old.start, old.step, old.rows),
        new.length - _last(old.length, old.growth, old.rows),
    )
    if old.ref != new.ref or (old.rows > 1 and (step, growth) != (old.step, old.growth)):
        return None
    return old._replace(rows=old.rows + 1, step=step, growth=growth)


def _last(begin: int, step: int, rows: int) -> int:
    return begin + step * (rows - 1)


def literal(name: str, items: Sequence, comment: str = "") -> str:
    """`name = (item, item, ...)` as Python text: one line, or filled lines that formatters leave alone."""
    lead = f"# {comment}\n" if comment else ""
    line = f"{name} = {_plain(tuple(items))}"
    if len(line) <= WIDTH:
        return lead + line
    body = "\n".join(_filled(items, "    "))
    return f"{lead}# fmt: off\n{name} = (\n{body}\n)\n# fmt: on"


def _filled(items: Sequence, indent: str) -> list[str]:
    """Lines filled with items; an item too long for a line gets lines of its own."""
    lines = [indent]
    for item in items:
        text = f"{_plain(item)},"
        if len(indent) + len(text) > WIDTH and isinstance(item, tuple):
            lines += [f"{indent}(", *_filled(item, f"{indent}    "), f"{indent}),", indent]
        elif lines[-1] == indent:
            lines[-1] += text
        elif len(lines[-1]) + len(text) < WIDTH:
            lines[-1] += f" {text}"
        else:
            lines.append(indent + text)
    return [line for line in lines if line != indent]


def _plain(item: object) -> str:
    """The text of a tuple (named ones included), of a number, or of a string without quotes in it."""
    if isinstance(item, tuple):
        return f"({', '.join(map(_plain, item))}{',' if len(item) == 1 else ''})"
    return f'"{item}"' if isinstance(item, str) else repr(item)
