"""The patterns of a study: families, budgets, tiles, shared by all heads or one for each, even and uneven."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pattern_studio as ps
from pattern_studio.capture import Capture
from pattern_studio.generators import GENERATORS
from pattern_studio.learned import fit_blocks, fit_family

DENSITIES = (0.5, 0.25, 0.1, 0.05)
BETWEEN = (0.35, 0.15)  # for square tiles, where a tenth of a short text pays for few families
FLOORS = {"floors": (0.25, 0.25), "mass only": (0.0, 0.0), "rows alike": (1.0, 0.0), "heads alike": (0.0, 1.0)}


def blocks(tokens: int) -> dict[str, tuple[int, int]]:
    """Tiles by kind: a 32nd of the text squared, twice that, and fine runs of keys down to single ones."""
    side = max(tokens // 32, 4)
    return {"square": (side, side), "wide": (2 * side, 2 * side), "runs": (side, side // 4), "keys": (side, 1)}


@dataclass(frozen=True)
class Candidate:
    """A pattern with what it was made from; `block` is what its tile figures refer to."""

    family: str
    scope: str  # shared: one pattern for all heads and layers; heads, layers: it differs over them
    requested: float | None  # block density, where one was asked for
    block: tuple[int, int]
    pattern: ps.Pattern


@dataclass(frozen=True)
class Recipe:
    """A candidate that is not made yet: a fit takes a while, and a study that goes on has most of them."""

    family: str
    scope: str
    requested: float | None
    block: tuple[int, int]
    make: Callable[[], ps.Pattern]  # a StudioError where the budget pays for none

    @property
    def key(self) -> tuple[str, float | None, tuple[int, int]]:
        """What tells it from all others."""
        return self.family, self.requested, self.block

    def made(self) -> Candidate:
        """The candidate; a StudioError where the budget pays for none."""
        return Candidate(self.family, self.scope, self.requested, self.block, self.make())


def recipes(fit: Capture) -> Iterator[Recipe]:
    """Every pattern of the study, from the cheapest to make on."""
    tokens, causal, tiles = len(fit.tokens), fit.causal, blocks(len(fit.tokens))
    problem = ps.Problem(tokens)
    for family, generator in GENERATORS.items():
        fewer = {"global_tokens": tokens // 64} if family == "global_local" else {}
        for block in tiles.values():
            for density in DENSITIES:
                generate = partial(generator, density, problem, block, causal=causal, **fewer)
                yield Recipe(family, "shared", density, block, lambda made=generate: made().pattern)
        for density in BETWEEN:
            generate = partial(generator, density, problem, tiles["square"], causal=causal, **fewer)
            yield Recipe(family, "shared", density, tiles["square"], lambda made=generate: made().pattern)
    for family, scope, pattern in (*_named(tokens), *_uneven(fit)):
        whole = ps.causal & pattern if causal else pattern
        yield Recipe(family, scope, None, tiles["square"], lambda made=whole: made)
    for density in DENSITIES[1:]:
        for block in (tiles["square"], tiles["runs"], tiles["keys"]):
            for name, (row_floor, head_floor) in FLOORS.items():
                floors = partial(fit_blocks, fit, density, block, row_floor=row_floor, head_floor=head_floor)
                yield Recipe(f"fitted tiles, {name}", "heads", density, block, lambda made=floors: made().pattern)
    for density in DENSITIES:
        windows = partial(fit_family, "local_window", fit, density, tiles["square"])
        yield Recipe("fitted windows", "heads", density, tiles["square"], lambda made=windows: made().pattern)


def _named(tokens: int) -> Iterator[tuple[str, str, ps.Pattern]]:
    """The literature's, at one scale of the text; both sides for an encoder."""
    span = tokens // 16
    both = ps.window(span, span)
    yield "window without sinks", "shared", both
    yield "window and sinks", "shared", both | ps.globals(cols=range(4))
    yield "narrow window and sinks", "shared", ps.window(span // 4, span // 4) | ps.globals(cols=range(4))
    yield "one sink and the diagonal", "shared", ps.window(0, 0) | ps.globals(cols=range(1))
    yield "strided", "shared", ps.strided(16) | ps.window(15, 15)
    yield "strided, no sink", "shared", ps.strided(16) - ps.globals(cols=range(1)) | ps.window(0, 0)
    yield "dilated", "shared", ps.dilated(span, span, rate=4) | ps.globals(cols=range(4))
    yield "random keys", "shared", ps.random(tokens // 8, seed=0) | ps.window(0, 0)
    yield (
        "random keys and sinks",
        "shared",
        ps.random(tokens // 8, seed=1) | ps.window(3, 3) | ps.globals(cols=range(4)),
    )
    yield "bigbird", "shared", ps.bigbird(block=tokens // 64)
    yield "vertical", "shared", ps.globals(cols=range(tokens // 8)) | ps.window(0, 0)
    yield "everything but sinks", "shared", ps.dense - ps.globals(cols=range(4)) | ps.window(0, 0)
    yield "everything but the near", "shared", (ps.dense - ps.window(15, 15)) | ps.window(0, 0)


def _uneven(fit: Capture) -> Iterator[tuple[str, str, ps.Pattern]]:
    """Budgets that starve some heads or layers and leave others whole: a mean hides them."""
    heads, layers = next(iter(fit.layers.values())).heads, list(fit.layers)
    narrow = ps.window(len(fit.tokens) // 32, len(fit.tokens) // 32) | ps.globals(cols=range(4))
    starved = ps.window(0, 0) | ps.globals(cols=range(1))
    thirds = [layers[at * len(layers) // 3 : (at + 1) * len(layers) // 3] for at in range(3)]
    for name, few in (("narrow", narrow), ("starved", starved)):
        every_third = {head: few if head % 3 == 0 else ps.dense for head in range(heads)}
        yield f"every third head {name}", "heads", ps.heads(every_third)
        yield (
            f"two of three heads {name}",
            "heads",
            ps.heads({head: ps.dense if head % 3 == 0 else few for head in range(heads)}),
        )
        for word, part in zip(("first", "middle", "last"), thirds, strict=True):
            yield (
                f"{word} layers {name}",
                "layers",
                ps.layers({layer: few if layer in part else ps.dense for layer in layers}),
            )
        yield (
            f"every second layer {name}",
            "layers",
            ps.layers({layer: few if at % 2 else ps.dense for at, layer in enumerate(layers)}),
        )
        yield (
            f"first layer {name}",
            "layers",
            ps.layers({layer: few if layer == layers[0] else ps.dense for layer in layers}),
        )
