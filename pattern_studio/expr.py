"""Pattern: a predicate on absolute positions, as an immutable expression tree.

A pattern says for a query position `i` and a key position `j` whether the pair is allowed. It has
no lengths. `allows` is the truth; `columns` and `signature` are shortcuts that must agree with it,
which tests hold them to. Text and tree are one thing: `str(p)` is canonical, valid Python, and
`parse(str(p)) == p`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .columns import ALL, Columns, Ints, Scope, Strips, covered, ragged, shifted, sweep, uniform
from .errors import StudioError
from .kleene import both, either, neither, one_of
from .problem import MAX_LENGTH, whole

LANGUAGE_VERSION = 1  # part of every hash: raise it when the meaning of a text changes

# How tightly a node's text binds, as in Python.
OR, XOR, AND, SHIFT, UNARY, ATOM = range(6)


class Pattern(ABC):
    """Abstract base of all patterns; subclasses are frozen dataclasses.

    Operators: `a & b`, `a | b`, `~a`, `a - b` (a without b), `a ^ b` (in one of them only),
    `a >> k` (moved k keys to the right), `a.T` (query and key exchanged), `a.within(docs)`
    (positions counted from the start of each document, nothing across documents).

    >>> import pattern_studio as ps
    >>> str(ps.causal & (ps.window(255, 0) | ps.sink(4)))
    'causal & (window(255, 0) | sink(4))'
    """

    binding: ClassVar[int] = ATOM

    @abstractmethod
    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        """Whether each pair (i, j) is allowed: integer arrays in, bool of their broadcast shape out."""

    @abstractmethod
    def columns(self, strips: Strips, scope: Scope) -> Columns:
        """Column runs of each strip: ALL and NONE must be right, BAND exact, SOME may be anything."""

    @abstractmethod
    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        """Integers per tile with corner (row, key): tiles with equal signatures have equal masks."""

    @abstractmethod
    def transposed(self) -> Pattern:
        """A pattern that allows (i, j) where this one allows (j, i)."""

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        """Column runs of the transpose, asked when `transposed` has no form of its own for it.

        By default every key is asked about as a row: right for all, slow for long dense rows.
        """
        return _columns_by_key(self, strips, scope)

    @abstractmethod
    def __str__(self) -> str: ...

    def parts(self) -> tuple[Pattern, ...]:
        """The patterns that this one is made of."""
        return ()

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        """This node over changed parts."""
        return self

    def resolve(self, head: int = 0, layer: int | None = None) -> Pattern:
        """The pattern of one head (and layer), free of per-head and per-layer assignments."""
        return self.rebuilt(lambda part: part.resolve(head, layer))

    def within(self, docs: Pattern) -> Pattern:
        """Inside each document only, with positions counted from the document's start."""
        wrap = getattr(docs, "around", None)
        if wrap is None:
            raise StudioError(f"within() takes docs, got {docs}; write pattern.within(docs)")
        return wrap(self)

    @property
    def T(self) -> Pattern:  # noqa: N802 - the field's name for a transpose
        """The transpose: (i, j) allowed where this pattern allows (j, i)."""
        return Transpose(self)

    @property
    def hash(self) -> str:
        """Stable content hash (16 hex digits) of the canonical text and the language version."""
        return hashlib.sha256(f"pattern-studio/{LANGUAGE_VERSION}\n{self}".encode()).hexdigest()[:16]

    def _repr_svg_(self) -> str | None:
        from .notebook import pattern_svg  # not at the top: it draws with what stands on this module

        return pattern_svg(self)

    def _repr_html_(self) -> str:
        from .notebook import pattern_html

        return pattern_html(self)

    def __and__(self, other: object) -> Pattern:
        return And(_flat(And, self, _operand("&", other)))

    def __or__(self, other: object) -> Pattern:
        return Or(_flat(Or, self, _operand("|", other)))

    def __sub__(self, other: object) -> Pattern:
        return self & ~_operand("-", other)

    def __xor__(self, other: object) -> Pattern:
        return Xor(self, _operand("^", other))

    def __invert__(self) -> Pattern:
        return self.child if isinstance(self, Not) else Not(self)

    def __rshift__(self, keys: int) -> Pattern:
        return Shift(self, whole("a shift", keys, -MAX_LENGTH))

    def __bool__(self) -> bool:
        raise StudioError("a pattern has no truth value: use & | ~ instead of and, or, not, and parenthesise a < b < c")


def _operand(operator: str, other: object) -> Pattern:
    if not isinstance(other, Pattern):
        raise StudioError(f"{operator} combines two patterns, got {other!r} on its right")
    return other


def _flat(kind: type[And] | type[Or], *patterns: Pattern) -> tuple[Pattern, ...]:
    return tuple(part for p in patterns for part in (p.children if isinstance(p, kind) else (p,)))


def wrapped(pattern: Pattern, binding: int) -> str:
    """The pattern's text, in brackets where it binds looser than its place asks."""
    return f"({pattern})" if pattern.binding < binding else str(pattern)


@dataclass(frozen=True)
class _Nary(Pattern):
    """An operator over two or more children; nested ones of a kind are flat."""

    children: tuple[Pattern, ...]
    symbol: ClassVar[str]
    combine: ClassVar[Callable]
    merge: ClassVar[np.ufunc]

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        result = self.children[0].allows(i, j, scope)
        for child in self.children[1:]:
            result = self.merge(result, child.allows(i, j, scope))
        return result

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        combine = type(self).combine

        def fold(first, *rest):
            for value in rest:
                first = combine(first, value)
            return first

        return sweep(strips, [child.columns(strips, scope) for child in self.children], fold)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [part for child in self.children for part in child.signature(row, key, shape, scope)]

    def transposed(self) -> Pattern:
        return self.rebuilt(lambda child: child.transposed())

    def parts(self) -> tuple[Pattern, ...]:
        return self.children

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return type(self)(tuple(change(child) for child in self.children))

    def __str__(self) -> str:
        return f" {self.symbol} ".join(wrapped(child, self.binding + 1) for child in self.children)


@dataclass(frozen=True)
class And(_Nary):
    """Pairs that every child allows."""

    binding: ClassVar[int] = AND
    symbol: ClassVar[str] = "&"
    combine: ClassVar[Callable] = staticmethod(both)
    merge: ClassVar[np.ufunc] = np.logical_and


@dataclass(frozen=True)
class Or(_Nary):
    """Pairs that a child allows."""

    binding: ClassVar[int] = OR
    symbol: ClassVar[str] = "|"
    combine: ClassVar[Callable] = staticmethod(either)
    merge: ClassVar[np.ufunc] = np.logical_or


@dataclass(frozen=True)
class Xor(Pattern):
    """Pairs that exactly one side allows."""

    left: Pattern
    right: Pattern
    binding: ClassVar[int] = XOR

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return self.left.allows(i, j, scope) ^ self.right.allows(i, j, scope)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return sweep(strips, [self.left.columns(strips, scope), self.right.columns(strips, scope)], one_of)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return self.left.signature(row, key, shape, scope) + self.right.signature(row, key, shape, scope)

    def transposed(self) -> Pattern:
        return self.rebuilt(lambda side: side.transposed())

    def parts(self) -> tuple[Pattern, ...]:
        return self.left, self.right

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return Xor(change(self.left), change(self.right))

    def __str__(self) -> str:
        return f"{wrapped(self.left, XOR)} ^ {wrapped(self.right, XOR + 1)}"


@dataclass(frozen=True)
class Not(Pattern):
    """Pairs that the child does not allow."""

    child: Pattern
    binding: ClassVar[int] = UNARY

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return ~self.child.allows(i, j, scope)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return sweep(strips, [self.child.columns(strips, scope)], neither)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return self.child.signature(row, key, shape, scope)

    def transposed(self) -> Pattern:
        return Not(self.child.transposed())

    def parts(self) -> tuple[Pattern, ...]:
        return (self.child,)

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return Not(change(self.child))

    def __str__(self) -> str:
        return f"~{wrapped(self.child, UNARY)}"


@dataclass(frozen=True)
class Shift(Pattern):
    """The child moved by `keys` to the right: allows (i, j) where the child allows (i - rows, j - keys).

    `rows` is not 0 only inside the transpose of a shift.
    """

    child: Pattern
    keys: int
    rows: int = 0
    binding: ClassVar[int] = SHIFT

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return self.child.allows(i - self.rows, j - self.keys, scope)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        moved = Strips(
            strips.first - self.rows, strips.last - self.rows, strips.key_first - self.keys, strips.key_stop - self.keys
        )
        return shifted(self.child.columns(moved, scope), self.keys, self.rows)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return self.child.signature(row - self.rows, key - self.keys, shape, scope)

    def transposed(self) -> Pattern:
        return Shift(self.child.transposed(), self.rows, self.keys)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.child,)

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return Shift(change(self.child), self.keys, self.rows)

    def __str__(self) -> str:
        if self.rows:
            return str(Shift(Transpose(Shift(Transpose(self.child), self.rows)), self.keys))
        return f"{wrapped(self.child, SHIFT)} >> {self.keys}"


@dataclass(frozen=True)
class Transpose(Pattern):
    """The child with query and key exchanged."""

    child: Pattern

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return self.child.allows(j, i, scope)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        pushed = self.child.transposed()
        if isinstance(pushed, Transpose):
            return pushed.child.transposed_columns(strips, scope)
        return pushed.columns(strips, scope)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return self.child.signature(key, row, (shape[1], shape[0]), scope)

    def transposed(self) -> Pattern:
        return self.child

    def parts(self) -> tuple[Pattern, ...]:
        return (self.child,)

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return Transpose(change(self.child))

    def __str__(self) -> str:
        return f"{wrapped(self.child, ATOM)}.T"


def _columns_by_key(child: Pattern, strips: Strips, scope: Scope) -> Columns:
    """Ask the child about every key as a row of its own, then sort its answers into the strips.

    Takes time proportional to the child's runs over single rows, whatever the number of strips.
    """
    if not len(strips):
        return uniform(strips, ALL)
    # Strips that follow one another over the same keys are asked about together; inside documents
    # positions start again, so each document is a batch of its own.
    fresh = (strips.first[1:] <= strips.last[:-1]) | (strips.key_first[1:] != strips.key_first[:-1])
    fresh |= strips.key_stop[1:] != strips.key_stop[:-1]
    batch = np.cumsum(np.r_[0, fresh])
    head = np.flatnonzero(np.r_[True, fresh])
    tail = np.r_[head[1:], len(strips)] - 1
    owner, rank = ragged(strips.key_stop[head] - strips.key_first[head])
    key = strips.key_first[head][owner] + rank
    low, high = strips.first[head], strips.last[tail] + 1
    runs = child.columns(Strips(key, key, low[owner], high[owner]), scope.at(head[owner]))  # one row each: all ALL
    base, width = int(low.min()), int(high.max()) - int(low.min()) + 1
    at = owner[runs.strip] * width - base
    begin = np.searchsorted(batch * width + strips.last - base, at + runs.start, "left")
    end = np.searchsorted(batch * width + strips.first - base, at + runs.stop, "left")
    run, rank = ragged(end - begin)
    strip = begin[run] + rank
    rows = np.minimum(runs.stop[run], strips.last[strip] + 1) - np.maximum(runs.start[run], strips.first[strip])
    column = key[runs.strip[run]]
    return covered(strips, strip, column, column + 1, rows)
