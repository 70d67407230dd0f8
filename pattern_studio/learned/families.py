"""families: the members that a fit chooses among, per head, from the cheapest to the whole dense mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..capture import Capture
from ..errors import StudioError
from ..expr import Pattern
from ..generators import GENERATORS
from ..metrics import block_mass
from ..patterns import PRIMITIVES
from ..problem import Problem

CAUSAL, vertical, window = (PRIMITIVES[name] for name in ("causal", "vertical", "window"))

STEPS = 10  # budgets that a family is tried at, in equal ratios
LEAST = 0.01  # the smallest of them

# A family gives every head of a layer its own list of members, all of one length.
Family = Callable[[Capture, int, tuple[int, int], Problem], list[list[Pattern]]]


def generated(name: str) -> Family:
    """A generator of `pattern_studio.generators` at a row of budgets, the same for all heads."""

    def members(capture: Capture, layer: int, block: tuple[int, int], problem: Problem) -> list[list[Pattern]]:
        return [list(_by_budget(name, problem, block, capture.causal)) for _ in range(capture.layers[layer].heads)]

    return members


@lru_cache(maxsize=32)  # every layer asks for the same
def _by_budget(name: str, problem: Problem, block: tuple[int, int], causal: bool) -> tuple[Pattern, ...]:
    options: tuple[dict[str, Any], ...] = ({"sinks": 0}, {"sinks": 4})
    options = ({"global_tokens": 4},) if name == "global_local" else options
    found: dict[Pattern, None] = {}
    for density in np.geomspace(LEAST, 1, STEPS).tolist():
        for option in options:
            try:
                made = GENERATORS[name](density, problem, block, causal=causal, **option)
            except StudioError:
                continue  # the budget is below the family's least; the next one may do
            found[made.pattern] = None
    return tuple(found)


def columns(capture: Capture, layer: int, block: tuple[int, int], problem: Problem) -> list[list[Pattern]]:
    """A window and whole columns, in stretches of a key block: those that hold most mass for their tiles.

    Each head has its own columns, chosen from what the capture's rows spend on them outside the window.

    Source: the vertical-slash heads of MInference (Jiang et al., arXiv:2407.02490), with static columns.
    """
    mass = block_mass(capture, layer, block)  # [heads, q_blocks, kv_blocks]
    tokens = len(capture.tokens)
    query, key = np.arange(mass.shape[1])[:, None] * block[0], np.arange(mass.shape[2]) * block[1]
    widths = np.unique(np.geomspace(max(block), max(tokens // 2, max(block)), 4).astype(int)).tolist()
    counts = np.unique(np.geomspace(1, mass.shape[2], STEPS).astype(int)).tolist()
    members: list[list[Pattern]] = []
    for one in mass:
        mine: list[Pattern] = []
        for width in widths:
            near = window(width - 1, 0 if capture.causal else width - 1)
            outside = key + block[1] <= query - width + 1
            if not capture.causal:
                outside |= key > query + block[0] + width - 2
            value = np.where(outside, one, 0).sum(0) / np.maximum(outside.sum(0), 1)
            order = np.argsort(-value, kind="stable")
            for count in counts:
                lines = vertical(_stretches(order[:count], block[1], tokens)) | near
                mine.append(CAUSAL & lines if capture.causal else lines)
        members.append(mine)
    return members


def _stretches(blocks: NDArray[np.int64], size: int, tokens: int) -> tuple[range, ...]:
    return tuple(range(at * size, min((at + 1) * size, tokens)) for at in sorted(blocks.tolist()))


# The registry: a generator's name, or a family whose members come from the capture itself.
FAMILIES: dict[str, Family] = {**{name: generated(name) for name in GENERATORS}, "columns": columns}


def family_members(
    names: Sequence[str], capture: Capture, layer: int, block: tuple[int, int], problem: Problem
) -> list[list[Pattern]]:
    """The members of several families together, for each head of a layer.

    `capture` holds the rows that a fit may look at; `problem` is what the patterns are for.

    Raises StudioError for a name that is no family.

    >>> from pattern_studio.capture import bundled
    >>> found = family_members(["local_window"], bundled(), 7, (64, 64), Problem(1024))
    >>> len(found), str(found[0][0]), str(found[0][-1])
    (9, 'causal & chunk(64)', 'causal')
    """
    together: list[list[Pattern]] = [[] for _ in range(capture.layers[layer].heads)]
    for name in names:
        if name not in FAMILIES:
            near = get_close_matches(str(name), FAMILIES, 1)
            hint = f"did you mean {near[0]!r}?" if near else "choose from these"
            raise StudioError(f"expected a family among {', '.join(FAMILIES)}, got {name!r}; {hint}")
        for mine, more in zip(together, FAMILIES[name](capture, layer, block, problem), strict=True):
            mine += more
    return together
