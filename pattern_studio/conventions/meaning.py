"""What a setting of another library means, as a pattern, for which layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..expr import Pattern
from ..patterns import PRIMITIVES

Slips = tuple[tuple[Pattern, str], ...]


@dataclass(frozen=True)
class Meaning:
    """What a setting means: the pattern, a sentence, and what is taken for it by mistake (`slips`).

    `layers` are those that it holds for; none where a convention knows no layers.
    """

    setting: str
    pattern: Pattern
    sentence: str
    slips: Slips = ()
    layers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{where(self.layers)}{self.setting} is {self.pattern}: {self.sentence}"


@dataclass(frozen=True)
class Convention:
    """A source of settings, what they mean layer by layer, the number of query heads, and remarks."""

    source: str
    meanings: tuple[Meaning, ...]
    heads: int = 1
    notes: tuple[str, ...] = ()

    @property
    def pattern(self) -> Pattern:
        """The whole convention as one pattern: `layers({...})` where layers differ."""
        if len(self.meanings) == 1:
            return self.meanings[0].pattern
        return PRIMITIVES["layers"]({span: m.pattern for m in self.meanings for span in spans(m.layers)})

    def __str__(self) -> str:
        return "\n".join([self.source, *map(str, self.meanings), *(f"note: {note}" for note in self.notes)])


def spans(layers: Sequence[int]) -> list[int | range]:
    """Layers as few ranges: one stepped range where they are evenly spaced, else stretches."""
    if len(layers) > 2 and len(steps := {b - a for a, b in pairwise(layers)}) == 1:
        return [range(layers[0], layers[-1] + 1, steps.pop())]
    heads = [n for k, n in enumerate(layers) if k == 0 or n != layers[k - 1] + 1]
    tails = [n for k, n in enumerate(layers) if k == len(layers) - 1 or n + 1 != layers[k + 1]]
    return [a if a == b else range(a, b + 1) for a, b in zip(heads, tails, strict=True)]


def where(layers: Sequence[int]) -> str:
    """How a line about these layers begins, such as `layers 0-2, 5: `."""
    if not layers:
        return ""
    shown = []
    for span in spans(layers):
        if isinstance(span, int):
            shown.append(str(span))
        else:
            shown.append(f"{span[0]}-{span[-1]}" + (f" in steps of {span.step}" if span.step > 1 else ""))
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(shown)}: "
