"""Family: one common shape of patterns with its form. The text stays the truth.

A family is a union of words, under `causal` or not. `read` finds its numbers in a pattern, whatever the
order of its terms, or says None; `build` makes the pattern of a form. Numbers that are 0 leave their
word out where the word is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pattern_studio as ps
from pattern_studio import Pattern

Values = Mapping[str, int]


@dataclass(frozen=True)
class Field:
    """One number of a form. `slide`: worth dragging; `pointless`: without meaning under `causal`."""

    name: str
    label: str
    default: int
    help: str
    low: int = 0
    slide: bool = False
    pointless: bool = False


@dataclass(frozen=True)
class Family:
    """A form: `build` makes a pattern from one number per field, `terms` says which words it may be read from.

    Each term is (word, required, reader); a reader gives a part's numbers, or None where the part holds
    something that the form has no field for.
    """

    name: str
    title: str
    about: str
    fields: tuple[Field, ...]
    parts: Callable[[Values], list[Pattern]]
    terms: tuple[tuple[str, bool, Callable[[Any], Values | None]], ...]

    @property
    def defaults(self) -> dict[str, int]:
        """The numbers that the form opens with; `causal` is 1 or 0."""
        return {"causal": 1, **{field.name: field.default for field in self.fields}}

    def build(self, values: Values) -> Pattern:
        """The pattern of a form."""
        parts = self.parts(values)
        union = parts[0]
        for part in parts[1:]:
            union = union | part
        if not values["causal"]:
            return union
        return ps.causal if union == ps.dense else ps.causal & union

    def read(self, pattern: Pattern) -> dict[str, int] | None:
        """The numbers of a pattern of this family, or None.

        >>> from pattern_studio_app.families import FAMILIES
        >>> FAMILIES["sink_window"].read(ps.parse("(sink(4) | window(63, 0)) & causal"))
        {'causal': 1, 'left': 63, 'right': 0, 'sink': 4}
        """
        causal, parts = split(pattern)
        words = [_word(part) for part in parts]
        allowed = [word for word, _, _ in self.terms]
        if len(set(words)) < len(words) or not set(words) <= set(allowed):
            return None
        values = {"causal": int(causal), **{field.name: 0 for field in self.fields}}
        for word, required, reader in self.terms:
            if word not in words:
                if required:
                    return None
                continue
            found = reader(parts[words.index(word)])
            if found is None:
                return None
            values.update(found)
        return values


def split(pattern: Pattern) -> tuple[bool, tuple[Pattern, ...]]:
    """Whether a pattern is under `causal`, and the terms of the union that is.

    >>> split(ps.parse("causal & (sink(4) | window(63, 0))"))
    (True, (Sink(n=4), Window(left=63, right=0)))
    """
    kind = type(pattern).__name__
    if pattern == ps.causal:
        return True, (ps.dense,)
    if kind == "And" and ps.causal in pattern.parts() and len(pattern.parts()) == 2:
        rest = next(part for part in pattern.parts() if part != ps.causal)
        return True, split(rest)[1] if type(rest).__name__ == "Or" else (rest,)
    return False, pattern.parts() if kind == "Or" else (pattern,)


def _word(pattern: Pattern) -> str:
    return getattr(pattern, "name", type(pattern).__name__)
