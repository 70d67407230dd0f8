"""check: whether a pattern is what a convention means, and which slip it is if not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..diff import Diff, diff
from ..errors import StudioError
from ..expr import Pattern
from ..lowering import lower
from ..problem import Problem
from .meaning import Convention, Meaning, where

PROBE = 2**20  # the largest number in a pattern that the compared length is made to exceed


@dataclass(frozen=True)
class Finding:
    """A pattern held against one meaning, for the layers (if any) where the pattern is the same."""

    meaning: Meaning
    layers: tuple[int, ...]
    matches: bool
    sentence: str
    diff: Diff

    def __str__(self) -> str:
        return f"{'ok' if self.matches else 'differs'}: {where(self.layers)}{self.sentence}"


@dataclass(frozen=True)
class Checkup:
    """All findings of one pattern against one convention, compared on `problem`."""

    convention: Convention
    problem: Problem
    findings: tuple[Finding, ...]

    @property
    def matches(self) -> bool:
        """Whether the pattern is what the convention means, in every layer and head."""
        return all(finding.matches for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join([str(self.convention), "", *map(str, self.findings)])


def check(pattern: Pattern, convention: Convention, problem: Problem | None = None) -> Checkup:
    """Hold a pattern against a convention, layer by layer; a difference is named where it is a known slip.

    Without a problem they are compared on more than twice as many tokens as either counts to (numbers
    above 2**20 aside) and on all query heads. Raises StudioError where the pattern has nothing for one
    of the layers or heads.

    >>> import pattern_studio as ps
    >>> from pattern_studio.conventions import read_config
    >>> settings = read_config({"model_type": "mistral", "sliding_window": 4, "num_hidden_layers": 2})
    >>> print(check(ps.parse("causal & window(4, 0)"), settings).findings[0])
    differs: layers 0-1: W in Hugging Face counts the query itself: window(W - 1, 0); this keeps 5 keys
    """
    if not isinstance(pattern, Pattern):
        raise StudioError(f"check() takes a Pattern, got {type(pattern).__name__}; read text with parse()")
    if problem is None:
        texts = " ".join([str(pattern), *(str(m.pattern) for m in convention.meanings)])
        numbers = [int(n) for n in re.findall(r"\d+", texts) if len(n) < 8 and int(n) <= PROBE]
        problem = Problem(2 * max([64, *numbers]) + 129, heads=convention.heads)
    findings = []
    for meaning in convention.meanings:
        alike: dict[tuple[Pattern, ...], list[int]] = {}
        for layer in meaning.layers:
            alike.setdefault(tuple(pattern.resolve(head, layer) for head in range(problem.heads)), []).append(layer)
        for layers in alike.values() if meaning.layers else [[]]:
            findings.append(_finding(pattern, meaning, tuple(layers), problem))
    return Checkup(convention, problem, tuple(findings))


def _finding(pattern: Pattern, meaning: Meaning, layers: tuple[int, ...], problem: Problem) -> Finding:
    layer = layers[0] if layers else None
    found = diff(pattern, meaning.pattern, problem, layer=layer, examples=1)
    if found.verdict == "equal":
        return Finding(meaning, layers, True, f"this is {meaning.pattern} ({meaning.setting})", found)
    for slip, sentence in meaning.slips:
        if lower(pattern ^ slip, problem, layer=layer).pairs == 0:
            return Finding(meaning, layers, False, sentence, found)
    words = {"subset": "lacks pairs of", "superset": "keeps more pairs than", "crossing": "keeps other pairs than"}
    first = found.examples[0]
    side = "kept" if first.side == "a" else "missing"
    sentence = f"this {words[found.verdict]} {meaning.pattern} ({meaning.setting}): "
    return Finding(meaning, layers, False, f"{sentence}query {first.i} has key {first.j} {side}", found)
