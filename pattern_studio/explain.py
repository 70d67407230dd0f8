"""explain: why a pair is allowed or not, by the smallest set of sub-expressions that decides it.

An `&` that fails needs one failing child, an `|` that holds one holding child, everything else all
children; where there is a choice the one with the fewest sub-expressions wins. What is left are
primitives, each with its place in the canonical text, so that an editor can mark it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .assignment import Assignment
from .columns import Scope
from .errors import StudioError
from .expr import And, Not, Or, Pattern, Shift, Transpose, Xor
from .patterns import PRIMITIVES
from .patterns.docs import Within
from .problem import Problem, block_shape, whole

DOCS = PRIMITIVES["docs"]


@dataclass(frozen=True)
class Reason:
    """One deciding sub-expression: `text`, which is `explanation.text[start:stop]`, and what it says.

    `allows` is its own answer, before any `~` around it, about the pair `(i, j)` that it was asked:
    a shift, a transpose or `.within(docs)` around it asks about another pair than the user did.
    """

    text: str
    start: int
    stop: int
    allows: bool
    i: int
    j: int
    sentence: str


@dataclass(frozen=True)
class Explanation:
    """Whether query position `i` sees key position `j`, the pattern's canonical text, and the reasons.

    `print` shows the verdict, the text with the reasons underlined, and a sentence for each.
    """

    i: int
    j: int
    head: int
    layer: int | None
    allowed: bool
    text: str
    reasons: tuple[Reason, ...]

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        where = f" in head {self.head}" if self.head else ""
        where += f" in layer {self.layer}" if self.layer is not None else ""
        return f"query {self.i} {'sees' if self.allowed else 'does not see'} key {self.j}{where}"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return {**vars(self), "sentence": self.sentence, "reasons": [dict(vars(r)) for r in self.reasons]}

    def __str__(self) -> str:
        marks = [" "] * len(self.text)
        for reason in self.reasons:
            marks[reason.start : reason.stop] = "^" * (reason.stop - reason.start)
        lines = [self.sentence, "", f"  {self.text}", f"  {''.join(marks).rstrip()}", ""]
        return "\n".join([*lines, *(f"- {reason.sentence}" for reason in self.reasons)])


def explain(
    pattern: Pattern,
    i: int,
    j: int,
    problem: Problem,
    *,
    head: int = 0,
    layer: int | None = None,
    block: int | tuple[int, int] = 128,
) -> Explanation:
    """Say why the query at position `i` sees the key at position `j`, or why not.

    Positions are absolute: query row `r` stands at `r + problem.q_offset`. `block` matters only to
    patterns with `unit=block`. Raises StudioError for a pair, head or layer that is not there.

    Source: minimal witnesses (prime implicants) of a formula's value, for one assignment.

    >>> import pattern_studio as ps
    >>> print(explain(ps.parse("causal & (window(3, 0) | sink(1))"), 9, 2, ps.Problem(16)))
    query 9 does not see key 2
    <BLANKLINE>
      causal & (window(3, 0) | sink(1))
                ^^^^^^^^^^^^   ^^^^^^^
    <BLANKLINE>
    - window(3, 0) does not allow query 9, key 2 (j - i = -7); it keeps -left <= j - i <= right
    - sink(1) does not allow query 9, key 2 (j - i = -7); it keeps 0 <= j < n
    """
    if not isinstance(pattern, Pattern):
        raise StudioError(f"explain() takes a Pattern, got {type(pattern).__name__}; read text with parse()")
    if problem.q_len == 0 or problem.kv_len == 0:
        raise StudioError(f"there is no pair to explain with q_len {problem.q_len} and kv_len {problem.kv_len}")
    i = whole("query position i", i, problem.offset, problem.offset + problem.q_len - 1)
    j = whole("key position j", j, 0, problem.kv_len - 1)
    head = whole("the head", head, 0, problem.heads - 1)
    asked = _Asked(head, layer, Scope(problem.kv_len, problem.doc_ends, block_shape(block)))
    allowed, reasons = asked.decide(pattern, 0, i, j, asked.scope, "")
    return Explanation(i, j, head, layer, allowed, str(pattern), tuple(sorted(reasons, key=lambda r: r.start)))


Decided = tuple[bool, list[Reason]]


@dataclass(frozen=True)
class _Asked:
    head: int
    layer: int | None
    scope: Scope

    def decide(self, node: Pattern, at: int, i: int, j: int, scope: Scope, context: str) -> Decided:
        """A node's answer on (i, j) and the smallest set of reasons; `at` is where its text starts."""
        places = dict(enumerate(_places(node, at)))
        match node:
            case Assignment():
                part, place = self._case(node, places)
                return self.decide(part, place, i, j, scope, context)
            case And() | Or():
                return self._any_or_all(node, places, i, j, scope, context)
            case Xor():
                left, right = (
                    self.decide(side, places[n], i, j, scope, context) for n, side in enumerate((node.left, node.right))
                )
                return left[0] ^ right[0], left[1] + right[1]
            case Not():
                allows, reasons = self.decide(node.child, places[0], i, j, scope, _and(context, "under ~"))
                return not allows, reasons
            case Shift():
                return self.decide(node.child, places[0], i - node.rows, j - node.keys, scope, _and(context, "shifted"))
            case Transpose():
                return self.decide(node.child, places[0], j, i, scope, _and(context, "transposed"))
            case Within():
                return self._within(node, at, places[0], i, j, scope, context)
        allows = _says(node, i, j, scope)
        return allows, [_reason(node, at, allows, i, j, context)]

    def _case(self, node: Assignment, places: dict[int, int]) -> tuple[Pattern, int]:
        """The case of an assignment that this head or layer follows, and where it stands."""
        index = self.head if node.unit == "head" else self.layer
        if index is None:
            raise StudioError("this pattern differs by layer: say which one (layer=...)")
        part = node.chosen(index)  # raises where there is none
        spans = (range(span, span + 1) if isinstance(span, int) else span for span, _ in node.cases)
        return part, next(places[n] for n, span in enumerate(spans) if index in span)

    def _any_or_all(
        self, node: And | Or, places: dict[int, int], i: int, j: int, scope: Scope, context: str
    ) -> Decided:
        decided = [self.decide(child, places[n], i, j, scope, context) for n, child in enumerate(node.children)]
        turning = isinstance(node, Or)  # the value that one child alone decides
        deciding = [reasons for value, reasons in decided if value == turning]
        if deciding:
            return turning, min(deciding, key=lambda reasons: (len(reasons), sum(len(r.text) for r in reasons)))
        return not turning, [reason for _, reasons in decided for reason in reasons]

    def _within(self, node: Within, at: int, inside: int, i: int, j: int, scope: Scope, context: str) -> Decided:
        docs_at = at + len(str(node)) - len("docs)")
        same = _says(DOCS, i, j, scope)
        document = _reason(DOCS, docs_at, same, i, j, context)
        if not same:
            return False, [document]
        ends = np.array(scope.doc_ends)
        number = int(np.searchsorted(ends, i, "right"))
        start = int(ends[number - 1]) if number else 0
        inner = Scope(int(ends[number]) - start, None, scope.block)
        allows, reasons = self.decide(node.child, inside, i - start, j - start, inner, _and(context, "in its document"))
        return allows, [*reasons, document] if allows else reasons


def _says(node: Pattern, i: int, j: int, scope: Scope) -> bool:
    return bool(node.allows(np.array([i]), np.array([j]), scope)[0])


def _places(node: Pattern, at: int) -> Iterator[int]:
    """Where the text of each part starts, for a node whose own text starts at `at`."""
    text, after = str(node), 0
    for part in node.parts():
        shown = str(part)
        after = text.index(shown, after)
        yield at + after
        after += len(shown)


def _and(context: str, how: str) -> str:
    return f"{context}, {how}" if context else how


def _reason(node: Pattern, at: int, allows: bool, i: int, j: int, context: str) -> Reason:
    text = str(node)
    rule = _rule(node)
    sentence = f"{text} {'allows' if allows else 'does not allow'} query {i}, key {j}"
    sentence += f" ({context}; j - i = {j - i})" if context else f" (j - i = {j - i})"
    return Reason(text, at, at + len(text), allows, i, j, sentence + (f"; it keeps {rule}" if rule else ""))


def _rule(node: Pattern) -> str:
    """The predicate that a primitive's docstring states, without what is said about it afterwards."""
    stated = re.search(r"Predicate: (.*?)(?:[.;]\s|\.$|\n\s*\n)", f"{type(node).__doc__}\n\n", re.DOTALL)
    if stated is None:
        return ""
    words = " ".join(stated[1].split())
    formula = re.match(r"(`[^`]*`),", words)  # what follows a formula explains it
    return (formula[1] if formula else words).replace("`", "")
