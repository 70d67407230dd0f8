"""Why pairs are allowed or not, for many pairs at once: what a pointer on the map is told as it moves.

`explain` names the smallest deciding part of one pair's expression. Here the top of the expression decides: the
term of the union that keeps a pair, or what forbids it. It is worked out for whole arrays of pairs, so the map
can answer without asking the server.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pattern_studio import Pattern, Problem
from pattern_studio.columns import Scope

LONGEST = 44  # letters of a term, of which a pattern may have pages


def reasons(
    pattern: Pattern, i: NDArray, j: NDArray, problem: Problem, block: tuple[int, int], head: int, layer: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Sentences, and which of them each pair has; -1 where the expression is no union under limits.

    Args:
        pattern: any pattern; i, j: absolute query and key positions, int64 [pairs]; head, layer: whose pattern.

    Returns:
        The sentences and int64 [pairs].

    Example:
        >>> import pattern_studio as ps
        >>> pattern, problem = ps.parse("causal & (window(3, 0) | sink(1))"), ps.Problem(16)
        >>> words, which = reasons(pattern, np.array([9, 9, 9]), np.array([0, 2, 12]), problem, (1, 1), 0, 0)
        >>> [words[n] for n in which]
        ['sink(1) keeps it', 'neither window(3, 0) nor sink(1) keeps it', 'causal forbids it']
    """
    scope = Scope(problem.kv_len, problem.doc_ends, block)
    limits, union = _terms(pattern, head, layer)
    which = np.full(len(i), -1, np.int64)
    words: list[str] = []

    def say(where: NDArray[np.bool_], sentence: str) -> None:
        if (where & (which < 0)).any():
            which[where & (which < 0)] = len(words)
            words.append(sentence)

    for limit in limits:
        say(~_allows(limit, i, j, scope), f"{_short(limit)} forbids it")
    for term in union:
        say(_allows(term, i, j, scope), f"{_short(term)} keeps it")
    say(np.ones(len(i), bool), _none([_short(term) for term in union]) if union else f"{_short(limits[-1])} keeps it")
    return words, which


def _terms(pattern: Pattern, head: int, layer: int) -> tuple[list[Pattern], list[Pattern]]:
    """What every pair must pass, and the terms of which one is enough."""
    limits = [_chosen(part, head, layer) for part in (pattern.parts() if _kind(pattern) == "And" else (pattern,))]
    unions = [part for part in limits if _kind(part) == "Or"]
    if len(unions) == 1:
        return [part for part in limits if part is not unions[0]], list(unions[0].parts())
    return (limits, []) if len(limits) > 1 else ([], limits)


def _chosen(pattern: Pattern, head: int, layer: int) -> Pattern:
    """The case that this head or layer follows, where there are cases."""
    unit = getattr(pattern, "unit", "")
    if _kind(pattern) in ("Heads", "Layers"):
        return _chosen(pattern.chosen(head if unit == "head" else layer), head, layer)  # type: ignore[attr-defined]
    return pattern


def _kind(pattern: Pattern) -> str:
    return type(pattern).__name__


def _allows(term: Pattern, i: NDArray, j: NDArray, scope: Scope) -> NDArray[np.bool_]:
    return np.asarray(term.allows(i, j, scope), bool)


def _short(term: Pattern) -> str:
    text = str(term)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _none(terms: list[str]) -> str:
    if len(terms) == 1:
        return f"{terms[0]} does not keep it"
    if len(terms) == 2:
        return f"neither {terms[0]} nor {terms[1]} keeps it"
    return f"none of {', '.join(terms[:4])}{', …' if len(terms) > 4 else ''} keeps it"
