"""A pattern as readable mask_mod code: one named line per primitive, then the expression that the pattern's text has.

Every primitive with a closed form on positions is written out; lists of positions, documents and explicit blocks become
small tables. What has no closed form (random draws, and patterns added later) raises NoClosedForm, and the caller looks
tiles up instead. Constants that never bind within the problem's lengths are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..expr import And, Not, Or, Pattern, Shift, Transpose, Xor
from ..patterns.blocks import Blocks
from ..patterns.causal import Causal
from ..patterns.chunk import Chunk
from ..patterns.dense import Dense
from ..patterns.dilated import Dilated
from ..patterns.docs import Docs, Within
from ..patterns.empty import Empty
from ..patterns.globals import Globals
from ..patterns.rect import Rect
from ..patterns.sink import Sink
from ..patterns.strided import Strided
from ..patterns.window import Window
from ..problem import Problem
from ..spans import contains, spans
from ._mask_code import ALWAYS, NEVER, Axis, MaskCode, NoClosedForm, Writer, all_of, any_of, plus
from ._strokes import literal

MAX_GROUPS = 8  # different patterns among the heads that are written out one by one
MAX_SPANS = 4  # stretches of positions that are compared; more become a table
_OR, _XOR, _AND, _ATOM = range(4)


def closed_form(
    patterns: Sequence[Pattern], head_group: NDArray[np.int32], problem: Problem, reach: int = 0
) -> MaskCode:
    """Code for the resolved patterns of the head groups, in terms of b, h, q_idx and kv_idx.

    With `reach`, no comparison is left out that binds for any position below it: code for longer sequences too.
    """
    if len(patterns) > MAX_GROUPS:
        raise NoClosedForm(f"more than {MAX_GROUPS} different heads")
    writer = _Expressions(problem)
    rows, keys = np.arange(problem.q_len), np.arange(problem.kv_len)
    i = Axis("q_idx", "q_idx", rows, 0, max(problem.q_len - 1, reach))
    j = Axis("kv_idx", "kv_idx", keys, 0, max(problem.kv_len - 1, reach))
    if problem.offset:
        # A number, not a module's constant: torch.compile follows globals to a module that must be importable.
        i = i.moved(problem.offset, writer.local("i", plus("q_idx", problem.offset), "the query's position"))
    texts = [writer.node(pattern, i, j) for pattern in patterns]
    if len(patterns) == 1:
        return writer.finished(texts[0][0])
    writer.code.constants.append(literal("HEAD_GROUP", head_group.tolist(), "which of the patterns each head follows"))
    writer.code.tables["head_group"] = "torch.tensor(HEAD_GROUP)"
    group = writer.local("group", "head_group[h]")
    terms = [f"(({group} == {n}) & {_wrap(text, _AND)})" for n, text in enumerate(texts)]
    return writer.finished(writer.chain(" | ", terms, "of_head"))


def _wrap(text: tuple[str, int], binding: int) -> str:
    return f"({text[0]})" if text[1] < binding else text[0]


class _Expressions(Writer):
    """The expressions of patterns; what a method returns as a string is one."""

    def node(self, pattern: Pattern, i: Axis, j: Axis) -> tuple[str, int]:
        """The expression of a pattern, and how tightly it binds."""
        match pattern:
            case And(children):
                return self.chain(" & ", [_wrap(self.node(c, i, j), _AND + 1) for c in children], "both"), _AND
            case Or(children):
                return self.chain(" | ", [_wrap(self.node(c, i, j), _OR + 1) for c in children], "either"), _OR
            case Xor(left, right):
                terms = [_wrap(self.node(left, i, j), _XOR), _wrap(self.node(right, i, j), _XOR + 1)]
                return self.chain(" ^ ", terms, "differ"), _XOR
            case Not(child):
                return f"~{_wrap(self.node(child, i, j), _ATOM)}", _ATOM
            case Shift(child, keys, rows):
                return self.node(child, self._moved(i, -rows), self._moved(j, -keys))
            case Transpose(child):
                return self.node(child, j, i)
            case Within(child):
                return self._within(child, i, j)
        return self.local(getattr(pattern, "name", "term"), self._leaf(pattern, i, j), str(pattern)), _ATOM

    def _leaf(self, pattern: Pattern, i: Axis, j: Axis) -> str:
        match pattern:
            case Dense():
                return ALWAYS
            case Empty():
                return NEVER
            case Causal():
                return self._band(i, j, None, 0)
            case Window(left, right) | Dilated(left, right, rate=1):
                return self._band(i, j, -left, right)
            case Dilated(left, right, rate=rate):
                distance = self.local("distance", f"{j.text} - {i.text}")
                bounds = [f"({distance} >= {-left * rate})"] if j.low - i.high < -left * rate else []
                bounds += [f"({distance} <= {right * rate})"] if j.high - i.low > right * rate else []
                return " & ".join([*bounds, f"({distance} % {rate} == 0)"])
            case Strided(stride):
                return f"({j.text} - {i.text}) % {stride} == 0"
            case Chunk(size):
                return f"{i.text} // {size} == {j.text} // {size}"
            case Sink(n):
                return self._among(j, (range(n),), "sink")
            case Globals():
                rows = self._among(i, pattern.rows, "global_rows")
                return any_of([rows, self._among(j, pattern.cols, "global_cols")])
            case Rect(rows, cols):
                return all_of([*self._bounds(i, rows.start, rows.stop), *self._bounds(j, cols.start, cols.stop)])
            case Docs():
                return self._same_document(i, j)
            case Blocks():
                return self._listed(pattern, i, j)
        raise NoClosedForm(str(pattern))

    def _band(self, i: Axis, j: Axis, lo: int | None, hi: int) -> str:
        bounds = []
        if lo is not None and j.low - i.high < lo:
            bounds.append(f"{i.text} - {-lo} <= {j.text}" if lo else f"{i.text} <= {j.text}")
        if j.high - i.low > hi:
            bounds.append(f"{j.text} <= {i.text} + {hi}" if hi else f"{j.text} <= {i.text}")
        return all_of(bounds)

    def _among(self, axis: Axis, items: Sequence[int | range], hint: str) -> str:
        """Whether the axis lies among checked positions."""
        if len(items) == 1 and isinstance(items[0], range) and items[0].step > 1:
            stepped = items[0]
            bounds = self._bounds(axis, stepped.start, stepped[-1] + 1)
            return all_of([*bounds, f"({axis.text} - {stepped.start}) % {stepped.step} == 0"])
        if len(items) <= MAX_SPANS:
            ends = [(n, n + 1) if isinstance(n, int) else (n.start, n.stop) for n in items]
            return any_of([all_of(self._bounds(axis, *end)) for end in ends])
        inside = contains(spans(items), axis.values)
        edges = np.flatnonzero(np.diff(np.r_[False, inside, False])).reshape(-1, 2).tolist()
        name = self.constant(hint.upper(), [tuple(edge) for edge in edges])
        return f"{self.table(hint, f'_flags({len(axis.values)}, {name})', '_flags')}[{axis.index}]"

    def _bounds(self, axis: Axis, start: int, stop: int) -> list[str]:
        """The comparisons that `start <= axis < stop` needs."""
        if start >= stop or stop <= axis.low or start > axis.high:
            return [NEVER]
        if stop == start + 1:
            return [f"{axis.text} == {start}"]
        return [f"{axis.text} >= {start}"] * (start > axis.low) + [f"{axis.text} < {stop}"] * (stop <= axis.high)

    def _moved(self, axis: Axis, by: int) -> Axis:
        if not by:
            return axis
        return axis.moved(by, self.local("moved", plus(axis.text, by)))

    def _same_document(self, i: Axis, j: Axis) -> str:
        # Two names for "outside", so that a query and a key outside all documents never meet.
        here, there = (self._document(axis, outside) for axis, outside in ((i, -1), (j, -2)))
        return f"{here} == {there}"

    def _document(self, axis: Axis, outside: int) -> str:
        self._doc_ends()
        first, length = int(axis.values[0]), len(axis.values)
        inside = axis.values[0] >= 0 and axis.values[-1] < self.problem.kv_len
        builder = f"_documents({length}, {first}, {-1 if inside else outside})"
        return f"{self.table('document', builder, '_documents')}[{axis.index}]"

    def _doc_ends(self) -> NDArray[np.int64]:
        ends = self.problem.doc_ends or ()
        if not any("DOC_ENDS = " in text for text in self.code.constants):
            self.constant("DOC_ENDS", ends)
        return np.array(ends, np.int64)

    def _within(self, child: Pattern, i: Axis, j: Axis) -> tuple[str, int]:
        same = self.local("docs", self._same_document(i, j))
        inner = self.node(child, self._rebased(i, "i_in_doc"), self._rebased(j, "j_in_doc"))
        return f"{same} & {_wrap(inner, _AND + 1)}", _AND

    def _rebased(self, axis: Axis, hint: str) -> Axis:
        ends = self._doc_ends()
        starts = np.r_[0, ends[:-1], 0] if len(ends) else np.zeros(1, np.int64)
        found = np.searchsorted(ends, axis.values, "right")
        values = axis.values - starts[np.where((axis.values >= 0) & (found < len(ends)), found, -1)]
        builder = f"_document_starts({len(axis.values)}, {int(axis.values[0])})"
        table = self.table("document_start", builder, "_documents", "_document_starts")
        text = self.local(hint, f"{axis.text} - {table}[{axis.index}]")
        return Axis(text, axis.index, values, int(values.min()), int(values.max()))

    def _listed(self, pattern: Blocks, i: Axis, j: Axis) -> str:
        rows = [tuple(tuple(span) for span in spans(row).tolist()) for row in pattern.rows]
        columns = max((stop for row in rows for _, stop in row), default=1)
        sides = ((i, pattern.block[0], len(rows)), (j, pattern.block[1], columns))
        # Queries and keys beyond the listed blocks see nothing: they are led into a margin of False.
        margin = int(any(a.low < 0 or a.high // size >= count for a, size, count in sides))
        index = [
            f"({a.text} // {size}).clamp(-1, {count}) + 1" if margin else f"{a.text} // {size}"
            for a, size, count in sides
        ]
        builder = f"_blocks({self.constant('BLOCK_ROWS', rows)}, {columns}, {margin})"
        return f"{self.table('blocks', builder, '_blocks')}[{', '.join(index)}]"
