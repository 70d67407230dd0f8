"""Leaf: the base of every primitive. Its text is the call that makes it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from .expr import Pattern, Transpose
from .problem import MAX_LENGTH, whole


class BlockUnit:
    """`unit=block`: the tile of whatever block size the pattern is lowered with."""

    def __repr__(self) -> str:
        return "block"

    def __reduce__(self) -> str:
        return "block"


block = BlockUnit()


@dataclass(frozen=True)
class Leaf(Pattern):
    """A primitive pattern: a frozen dataclass whose fields are the arguments of its text.

    `name` is the word of the language, the file and the registry. Keyword-only fields are printed
    with their name and left out at their default. `reads_length` says that what it allows depends on how
    many keys there are, so that a longer problem is not the same pattern with more rows and keys.
    """

    name: ClassVar[str]
    reads_length: ClassVar[bool] = False

    def __str__(self) -> str:
        shown = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.kw_only and value == f.default and type(value) is type(f.default):
                continue
            shown.append(f"{f.name}={_text(value)}" if f.kw_only else _text(value))
        return self.name if not fields(self) else f"{self.name}({', '.join(shown)})"

    def transposed(self) -> Pattern:
        """Without a shortcut of its own a leaf's transpose is found by enumeration."""
        return Transpose(self)

    def check(self, field: str, low: int, high: int = MAX_LENGTH) -> None:
        """Make a field a whole number in [low, high], or raise naming the primitive."""
        object.__setattr__(self, field, whole(f"{self.name}'s {field}", getattr(self, field), low, high))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        inner = ", ".join(_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
