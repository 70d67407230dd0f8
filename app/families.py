"""The families that have a form, listed by hand."""

from __future__ import annotations

from collections.abc import Callable

import pattern_studio as ps
from pattern_studio import Pattern

from .family import Family, Field, Values, split

LONGEST = 1_048_576  # tokens, of a number in a form: as long as a sequence in the app can be


def _window(part) -> Values | None:
    return {"left": part.left, "right": part.right}


def _near(part) -> Values | None:
    return {"left": part.left} if part.right in (0, part.left) else None


def _first(part) -> Values | None:
    """Globals over the first `n` queries and keys."""
    n = part.cols[0].stop if part.cols and isinstance(part.cols[0], range) else 1
    return {"tokens": n} if part == _globals(n) else None


def _globals(n: int) -> Pattern:
    return ps.globals(rows=(range(0, n),), cols=(range(0, n),))


def _random(part) -> Values | None:
    if not isinstance(part.unit, int):
        return None  # unit=block: the form counts in tokens
    return {"k": part.k, "unit": part.unit, "seed": part.seed}


def _band(values: Values) -> Pattern:
    """A window that looks back, and ahead as far where the pattern is not causal."""
    return ps.window(values["left"], 0 if values["causal"] else values["left"])


def _optional(value: int, make: Callable[[int], Pattern]) -> list[Pattern]:
    return [make(value)] if value else []


LEFT = Field("left", "Window, keys back", 255, "How many keys before itself a query sees.", slide=True)
NEAR = Field("left", "Window, keys back", 127, "How many keys nearby a query sees, besides itself.", slide=True)
SINK = Field("sink", "Sink keys", 4, "The first keys, which every query sees: sink(n). Models park attention there.")

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "sink_window",
            "Sink + window",
            "A sliding window, and the first keys for all (StreamingLLM).",
            (
                LEFT,
                Field("right", "Keys ahead", 0, "How many keys after itself a query sees.", pointless=True),
                SINK,
            ),
            lambda v: [ps.window(v["left"], v["right"]), *_optional(v["sink"], ps.sink)],
            (("window", True, _window), ("sink", False, lambda part: {"sink": part.n})),
        ),
        Family(
            "dilated",
            "Dilated window",
            "A window with gaps: further back for the same cost (Longformer, LongNet).",
            (
                Field("taps", "Taps back", 31, "How many keys it takes, one every `rate` tokens.", slide=True),
                Field("rate", "Rate", 8, "Distance between taps, in tokens.", low=1),
                Field("left", "Near window", 63, "Keys before itself that a query sees without gaps; 0 is none."),
            ),
            lambda v: [
                ps.dilated(v["taps"], 0 if v["causal"] else v["taps"], rate=v["rate"]),
                *_optional(v["left"], lambda left: _band({**v, "left": left})),
            ],
            (
                (
                    "dilated",
                    True,
                    lambda part: {"taps": part.left, "rate": part.rate} if part.right in (0, part.left) else None,
                ),
                ("window", False, _near),
            ),
        ),
        Family(
            "global_local",
            "Global + local",
            "A window, and first tokens that see all and are seen by all (Longformer, BigBird).",
            (NEAR, Field("tokens", "Global tokens", 16, "The first tokens: whole rows and whole columns.", low=1)),
            lambda v: [_band(v), _globals(v["tokens"])],
            (("window", True, _near), ("globals", True, _first)),
        ),
        Family(
            "strided",
            "Strided",
            "A window, and every key at a whole multiple of the stride (Sparse Transformer).",
            (NEAR, Field("stride", "Stride", 128, "Tokens between two keys that are seen.", low=1)),
            lambda v: [_band(v), ps.strided(v["stride"])],
            (("window", True, _near), ("strided", True, lambda part: {"stride": part.stride})),
        ),
        Family(
            "random",
            "Window + random",
            "A window, the first keys, and blocks drawn at random among the past (BigBird).",
            (
                NEAR,
                Field("sink", "Sink keys", 16, "The first keys, which every query sees: sink(n)."),
                Field("k", "Random units", 2, "How many units each unit of queries draws."),
                Field("unit", "Unit, tokens", 64, "Queries that share a draw, and keys drawn together.", low=1),
                Field("seed", "Seed", 0, "Another seed, another draw; the same seed is the same everywhere."),
            ),
            lambda v: [
                _band(v),
                *_optional(v["sink"], ps.sink),
                ps.random(v["k"], unit=v["unit"], seed=v["seed"], past=bool(v["causal"])),
            ],
            (("window", True, _near), ("sink", False, lambda part: {"sink": part.n}), ("random", True, _random)),
        ),
        Family(
            "chunk",
            "Chunks",
            "Attention inside chunks of one size (Llama 4), with first keys for all.",
            (
                Field("size", "Chunk, tokens", 256, "Positions of a chunk see each other.", low=1, slide=True),
                Field("sink", "Sink keys", 0, "The first keys, which every query sees: sink(n); 0 is none."),
            ),
            lambda v: [ps.chunk(v["size"]), *_optional(v["sink"], ps.sink)],
            (
                ("chunk", True, lambda part: {"size": part.size}),
                ("sink", False, lambda part: {"sink": part.n}),
            ),
        ),
        Family(
            "dense",
            "Dense",
            "Everything, or everything before: what the others are measured against.",
            (),
            lambda v: [ps.dense],
            (("dense", True, lambda part: {}),),
        ),
    )
}


def family_of(pattern: Pattern) -> tuple[Family, dict[str, int]] | None:
    """The first family that a pattern belongs to, with its numbers; None is free form.

    A form may only stand for a text that it can make again.

    >>> family_of(ps.parse("causal & window(63, 0) & docs")) is None
    True
    """
    for family in FAMILIES.values():
        values = family.read(pattern)
        if values is not None and _same(family.build(values), pattern):
            return family, values
    return None


def _same(made: Pattern, read: Pattern) -> bool:
    """Equal but for the order of terms."""
    (causal, parts), (causal_read, parts_read) = split(made), split(read)
    return causal == causal_read and set(parts) == set(parts_read)
