"""Assignment: the base of patterns that differ by head or by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from .columns import Columns, Ints, Scope, Strips
from .errors import StudioError
from .expr import Pattern
from .problem import whole


@dataclass(frozen=True, init=False)
class Assignment(Pattern):
    """Patterns by index ranges, apart from each other; `resolve` takes the right one."""

    cases: tuple[tuple[int | range, Pattern], ...]
    name: ClassVar[str]
    unit: ClassVar[str]

    def __init__(self, cases: Mapping[int | range, Pattern]) -> None:
        if not isinstance(cases, Mapping) or not cases:
            raise StudioError(f"{self.name}() takes a mapping such as {{range(0, 8): causal, 8: dense}}, got {cases!r}")
        taken: dict[int, object] = {}
        kept: list[tuple[int | range, Pattern]] = []
        for key, pattern in cases.items():
            if not isinstance(pattern, Pattern):
                raise StudioError(f"{self.name}() assigns patterns, got {pattern!r} for {key!r}")
            span = key if isinstance(key, range) else range(index := whole(f"a {self.unit}", key, 0, 65535), index + 1)
            if not len(span) or span.step < 1 or span.start < 0 or span[-1] > 65535:
                raise StudioError(f"{self.name}() takes rising ranges within 0 to 65535, got {key!r}")
            for index in span:
                if index in taken:
                    raise StudioError(f"{self.unit} {index} has two patterns in {self.name}(); give it one")
                taken[index] = key
            kept.append((span.start if len(span) == 1 else span, pattern))
        object.__setattr__(self, "cases", tuple(kept))

    def chosen(self, index: int) -> Pattern:
        """The pattern of one index, or an error that says which are there."""
        for span, pattern in self.cases:
            if index == span or (isinstance(span, range) and index in span):
                return pattern
        have = ", ".join(f"{s}" if isinstance(s, int) else repr(s) for s, _ in self.cases)
        raise StudioError(f"{self.unit} {index} has no pattern in {self.name}(); it has {have}")

    def parts(self) -> tuple[Pattern, ...]:
        return tuple(pattern for _, pattern in self.cases)

    def rebuilt(self, change: Callable[[Pattern], Pattern]) -> Self:
        return type(self)({span: change(pattern) for span, pattern in self.cases})

    def transposed(self) -> Pattern:
        return self.rebuilt(lambda pattern: pattern.transposed())

    def _undecided(self) -> NoReturn:
        raise StudioError(f"this pattern differs by {self.unit}: take one with .resolve({self.unit}=...)")

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        self._undecided()

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        self._undecided()

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        self._undecided()

    def __str__(self) -> str:
        return f"{self.name}({{{', '.join(f'{span!r}: {pattern}' for span, pattern in self.cases)}}})"
