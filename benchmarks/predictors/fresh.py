"""Patterns that no predictor was chosen on: other seeds, spans, tiles, densities and heads than `recipes` has.

They were written down before any of them was measured, and none is left out afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pattern_studio as ps
from pattern_studio.capture import Capture
from pattern_studio.generators import GENERATORS
from pattern_studio.learned import fit_blocks, fit_family

from .patterns import Recipe


def fresh(fit: Capture) -> Iterator[Recipe]:
    """About sixty, none of them among `recipes`."""
    tokens, causal = len(fit.tokens), fit.causal
    problem, side = ps.Problem(tokens), max(tokens // 32, 4)
    tiles = {
        (side // 2, side // 2): (0.4, 0.2),
        (2 * side, side): (0.58, 0.34),
        (side, side // 2): (0.44, 0.16),
        (4 * side, 4 * side): (0.48, 0.33),
    }
    for family, generator in GENERATORS.items():
        fewer = {"global_tokens": tokens // 32} if family == "global_local" else {}
        for block, densities in tiles.items():
            for density in densities:
                generate = partial(generator, density, problem, block, causal=causal, **fewer)
                yield Recipe(family, "shared", density, block, lambda made=generate: made().pattern)
    square = (side, side)
    for family, scope, pattern in (*_named(tokens), *_uneven(fit)):
        whole = ps.causal & pattern if causal else pattern
        yield Recipe(family, scope, None, square, lambda made=whole: made)
    for density in (0.3, 0.12):
        windows = partial(fit_family, "local_window", fit, density, square)
        yield Recipe("fitted windows", "heads", density, square, lambda made=windows: made().pattern)
    for density in (0.18, 0.07):
        block = (side, side // 2)
        made = partial(fit_blocks, fit, density, block, row_floor=0.5, head_floor=0.25)
        yield Recipe("fitted tiles, other floors", "heads", density, block, lambda made=made: made().pattern)


def _named(tokens: int) -> Iterator[tuple[str, str, ps.Pattern]]:
    diagonal = ps.window(0, 0)

    def sinks(count: int) -> ps.Pattern:
        return ps.globals(cols=range(count))

    yield "wide window without sinks", "shared", ps.window(tokens // 5, tokens // 5)
    yield "short window without sinks", "shared", ps.window(5, 5)
    yield "window and one sink", "shared", ps.window(tokens // 10, tokens // 10) | sinks(1)
    yield "window and many sinks", "shared", ps.window(tokens // 24, tokens // 24) | sinks(tokens // 16)
    yield "sinks and the diagonal", "shared", diagonal | sinks(6)
    yield "strided by 8", "shared", ps.strided(8) | ps.window(7, 7)
    yield "strided by 32, no sink", "shared", ps.strided(32) - sinks(1) | ps.window(11, 11)
    yield "dilated by 2", "shared", ps.dilated(tokens // 6, tokens // 6, rate=2) | sinks(2)
    yield "dilated by 8, no sink", "shared", ps.dilated(tokens // 2, tokens // 2, rate=8) | ps.window(1, 1)
    yield "more random keys", "shared", ps.random(tokens // 4, seed=7) | diagonal
    yield "few random keys and sinks", "shared", ps.random(tokens // 20, seed=8) | ps.window(2, 2) | sinks(2)
    yield "random keys by a window", "shared", ps.random(tokens // 16, seed=9) | ps.window(tokens // 32, tokens // 32)
    yield "more vertical", "shared", sinks(tokens // 4) | diagonal
    yield "everything but the first key", "shared", ps.dense - sinks(1) | diagonal
    yield "everything but many sinks", "shared", ps.dense - sinks(tokens // 16) | diagonal
    yield "everything but the nearer", "shared", ps.dense - ps.window(39, 39) | diagonal


def _uneven(fit: Capture) -> Iterator[tuple[str, str, ps.Pattern]]:
    heads, layers = next(iter(fit.layers.values())).heads, list(fit.layers)
    near, starved = ps.window(11, 11) | ps.globals(cols=range(2)), ps.window(1, 1) | ps.globals(cols=range(1))
    lost = ps.window(len(fit.tokens) // 16, len(fit.tokens) // 16)

    def by_head(few: ps.Pattern, chosen: range) -> ps.Pattern:
        return ps.heads({head: few if head in chosen else ps.dense for head in range(heads)})

    def by_layer(few: ps.Pattern, chosen: list[int]) -> ps.Pattern:
        return ps.layers({layer: few if layer in chosen else ps.dense for layer in layers})

    yield "every fourth head near", "heads", by_head(near, range(1, heads, 4))
    yield "half of the heads starved", "heads", by_head(starved, range(0, heads, 2))
    yield "one head without sinks", "heads", by_head(lost, range(2, 3))
    yield "half of the heads without sinks", "heads", by_head(lost, range(1, heads, 2))
    half = len(layers) // 2
    for name, few in (("near", near), ("starved", starved), ("without sinks", lost)):
        yield f"first half of the layers {name}", "layers", by_layer(few, layers[:half])
        yield f"last half of the layers {name}", "layers", by_layer(few, layers[half:])
    yield "second layer starved", "layers", by_layer(starved, layers[1:2])
    yield "a middle layer without sinks", "layers", by_layer(lost, layers[half : half + 1])
    yield "every third layer starved", "layers", by_layer(starved, layers[::3])
