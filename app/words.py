"""A pattern in plain words, where it is simple enough for one sentence."""

from __future__ import annotations

from typing import Any

import pattern_studio as ps
from pattern_studio import Pattern

LONGEST = 4  # terms of a sentence that can still be followed


def sentence(pattern: Pattern) -> str:
    """What a query sees, or how large the pattern is where no sentence would help.

    >>> sentence(ps.parse("causal & (window(255, 0) | sink(4))"))
    'Each query sees itself and the 255 keys before it, plus the first 4 keys; nothing ahead of itself.'
    """
    if pattern == ps.causal:
        return "Each query sees itself and everything before it: dense causal attention."
    terms = pattern.parts() if type(pattern).__name__ == "And" else (pattern,)
    limits = [_LIMITS[term] for term in terms if term in _LIMITS]
    rest = [term for term in terms if term not in _LIMITS]
    union = rest[0].parts() if len(rest) == 1 and type(rest[0]).__name__ == "Or" else rest
    seen = [_seen(term) for term in union]
    if len(rest) > 1 or len(union) > LONGEST or None in seen:
        count = _leaves(pattern)
        return f"A free-form pattern of {count} word{'' if count == 1 else 's'}."
    what = ", plus ".join(part for part in seen if part) or "every key"
    return "; ".join([f"Each query sees {what}", *limits]) + "."


_LIMITS: dict[Pattern, str] = {ps.causal: "nothing ahead of itself", ps.docs: "nothing outside its document"}


def _seen(p: Any) -> str | None:
    """The keys that one word gives a query; None for what is no word or takes more than a phrase."""
    match getattr(p, "name", ""):
        case "dense":
            return "every key"
        case "empty":
            return "no key"
        case "window":
            sides = [(p.left, "before"), (p.right, "after")]
            near = [f"the {'key' if n == 1 else f'{n:,} keys'} {side} it" for n, side in sides if n]
            if len(near) == 2:
                near[1] = f"the {p.right:,} after it"
            return " and ".join(filter(None, [", ".join(["itself", *near[:-1]]), *near[-1:]]))
        case "dilated":
            ahead = f" and {p.right:,} ahead" if p.right else ""
            return f"every {_nth(p.rate)} key, {p.left:,} of them back{ahead}"
        case "strided":
            return f"every {_nth(p.stride)} key counted from itself"
        case "chunk":
            return f"its own chunk of {p.size:,}"
        case "sink":
            return f"the first {p.n:,} keys" if p.n != 1 else "the first key"
        case "random":
            unit = "keys" if p.unit == 1 else f"blocks of {p.unit:,} keys" if isinstance(p.unit, int) else "key blocks"
            return f"{p.k:,} random {unit}{' of the past' if p.past else ''}"
        case "globals":
            rows = "; chosen queries see every key" if p.rows else ""
            return f"chosen keys that all see{rows}" if p.cols else f"no key of its own{rows}"
        case "rect":
            return f"one rectangle (queries {_span(p.rows)}, keys {_span(p.cols)})"
        case "docs":
            return "its own document"
    return None


def _span(span: range) -> str:
    return f"{span.start:,} to {span.stop - 1:,}" if len(span) else "none"


def _nth(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def names(pattern: Pattern) -> set[str]:
    """The names of all nodes, found without recursion: the tree may be deep.

    >>> sorted(names(ps.parse("causal & docs")))
    ['And', 'causal', 'docs']
    """
    found, open_ = set(), [pattern]
    while open_:
        node = open_.pop()
        found.add(getattr(node, "name", type(node).__name__))
        open_.extend(node.parts())
    return found


def layer_cases(pattern: Pattern) -> list[range]:
    """The layers of every case of a pattern that differs by layer, in their order.

    >>> layer_cases(ps.parse("layers({range(0, 4): causal, 4: dense})"))
    [range(0, 4), range(4, 5)]
    """
    found, open_ = [], [pattern]
    while open_:
        node = open_.pop()
        if getattr(node, "name", "") == "layers":
            found += [span if isinstance(span, range) else range(span, span + 1) for span, _ in node.cases]  # type: ignore[attr-defined]
        open_.extend(node.parts())
    return sorted(set(found), key=lambda span: (span.start, span.stop))


def _leaves(pattern: Pattern) -> int:
    """Leaves of the tree, counted without recursion: the tree may be deep."""
    count, open_ = 0, [pattern]
    while open_:
        parts = open_.pop().parts()
        count += not parts
        open_.extend(parts)
    return count
