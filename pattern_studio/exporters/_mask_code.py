"""The frame of generated mask code: named lines, tables and constants, and positions with their reach."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..problem import Problem
from ._strokes import literal

LINE = 100  # characters of a line of code, as far as it can be kept
ALWAYS, NEVER = "kv_idx >= 0", "kv_idx < 0"


class NoClosedForm(Exception):  # noqa: N818 - it is caught by the caller, who then looks tiles up
    """A part of the pattern can't be written as code."""


@dataclass
class MaskCode:
    """The parts of a mask function: module-level constants, helpers and tables it needs, its lines and its result."""

    constants: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    result: str = ""


@dataclass(frozen=True)
class Axis:
    """A position in code: its text, its value for every row (or key), its smallest and largest value.

    `index` is what tables over it are indexed with.
    """

    text: str
    index: str
    values: NDArray[np.int64]
    low: int
    high: int

    def moved(self, by: int, text: str) -> Axis:
        """The axis `by` positions further on."""
        if max(abs(self.low + by), abs(self.high + by)) >= 2**31:
            raise NoClosedForm("positions beyond 32 bits")  # kernels keep indices in int32
        return replace(self, text=text, values=self.values + by, low=self.low + by, high=self.high + by)


def free(hint: str, taken: set[str]) -> str:
    """The hint, or the hint with the first number that is not taken."""
    names = itertools.chain([hint], (f"{hint}_{n}" for n in itertools.count(2)))
    return next(name for name in names if name not in taken)


def plus(text: str, by: int) -> str:
    """The expression of a number further on."""
    return f"{text} {'+' if by > 0 else '-'} {abs(by)}"


def all_of(terms: list[str]) -> str:
    """The conjunction of comparisons."""
    if NEVER in terms:
        return NEVER
    return " & ".join(f"({term})" for term in terms) if len(terms) > 1 else (*terms, ALWAYS)[0]


def any_of(terms: list[str]) -> str:
    """The disjunction of comparisons."""
    if ALWAYS in terms:
        return ALWAYS
    terms = [term for term in terms if term != NEVER]
    return " | ".join(f"({term})" for term in terms) if len(terms) > 1 else (*terms, NEVER)[0]


class Writer:
    """Collects the code; every method that returns a string returns an expression."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.code = problem, MaskCode()
        self.known: dict[str, str] = {}

    def finished(self, result: str) -> MaskCode:
        """The code with its result, written out where it is the last local by itself; unused locals are dropped."""
        body, used = [], result
        for line in reversed(self.code.body):
            name, _, value = line.partition(" = ")
            if not body and name == used:
                result = used = value.partition("  #")[0]
            elif re.search(rf"\b{name}\b", used):
                body.append(line)
                used += f" {value}"
        self.code.body, self.code.result = body[::-1], result
        return self.code

    def local(self, hint: str, expression: str, comment: str = "") -> str:
        """The name of a local variable with this value; equal values share one."""
        if expression not in self.known:
            name = self._unused(hint)
            line = f"{name} = {expression}"
            told = comment not in ("", hint) and len(line) + len(comment) < LINE
            shown = f"  # {comment}" if told else ""
            self.code.body.append(line + shown)
            self.known[expression] = name
        return self.known[expression]

    def _unused(self, hint: str) -> str:
        return free(hint, {*self.known.values(), *self.code.tables})

    def table(self, hint: str, builder: str, *helpers: str) -> str:
        """The name of a table with this builder; equal builders share one."""
        names = {text: name for name, text in self.code.tables.items()}
        if builder in names:
            return names[builder]
        name = self._unused(hint)
        self.code.tables[name] = builder
        self.code.helpers += [h for h in helpers if h not in self.code.helpers]
        return name

    def constant(self, hint: str, items: Sequence) -> str:
        """The name of a module-level constant with these items."""
        name = free(hint, {text.partition(" = (")[0].split("\n")[-1] for text in self.code.constants})
        self.code.constants.append(literal(name, items))
        return name

    def chain(self, symbol: str, terms: list[str], hint: str) -> str:
        """Terms joined by an operator, cut into locals where the line would be too long."""
        text = ""
        for n, term in enumerate(terms):
            longer = f"{text}{symbol}{term}" if text else term
            if text and len(longer) > LINE:
                longer = f"{self.local(hint, text)}{symbol}{term}"
            text = longer
            if n and len(text) > LINE:
                text = self.local(hint, text)
        return text
