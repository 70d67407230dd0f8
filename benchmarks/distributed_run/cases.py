"""What is timed: patterns, lengths and modes, in the order of their importance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pattern_studio as ps

WINDOW = "causal & (window(4095, 0) | sink(64))"
UNIT = 128  # keys of a random draw


@dataclass(frozen=True)
class Case:
    """A pattern over so many tokens; `heads` are those of q, k and v, which the pattern tells apart if `per_head`.

    >>> Case("w", WINDOW, 8192, 16, 64).layout().problem.heads
    1
    """

    name: str
    text: str
    tokens: int
    heads: int
    dim: int
    per_head: bool = False
    mode: str = "auto"
    overlap: bool | None = None
    common: bool | None = None
    block: int = 128  # of queries and of keys: kernels are compiled for each size, so one does for all

    def options(self) -> dict[str, Any]:
        """What `distributed_plan` is told of how keys travel."""
        return {"mode": self.mode, "overlap": self.overlap, "common": self.common}

    def layout(self) -> ps.BlockLayout:
        """The lowered pattern; a pattern that is alike in all heads is lowered for one."""
        return ps.lower(
            ps.parse(self.text), q_len=self.tokens, heads=self.heads if self.per_head else 1, block=self.block
        )


def random_per_head(density: float, tokens: int, heads: int) -> str:
    """Another draw of key units for each head, so many of each row of units.

    >>> random_per_head(0.5, 1024, 2)
    'heads({0: random(4, unit=128, seed=0), 1: random(4, unit=128, seed=1)})'
    """
    kept = max(1, round(density * tokens / UNIT))
    return "heads({" + ", ".join(f"{head}: random({kept}, unit={UNIT}, seed={head})" for head in range(heads)) + "})"


def cases(tokens: int, long: int, heads: int, dim: int) -> tuple[Case, ...]:
    """All cases, the most telling first; `long` is the length of the longest."""
    return (
        Case("window + sinks", WINDOW, tokens, heads, dim),
        Case("random per head .05", random_per_head(0.05, tokens, heads), tokens, heads, dim, per_head=True),
        Case("dense causal, ring", "causal", tokens, heads, dim, mode="ring"),
        Case("window + sinks, long", WINDOW, long, heads, dim),
        Case("window + sinks, parts", WINDOW, tokens, heads, dim, mode="fetch", overlap=True),
        Case("window + sinks, ring", WINDOW, tokens, heads, dim, mode="ring"),
    )


def small(heads: int, dim: int) -> tuple[Case, ...]:
    """Problems that are small enough for a dense float64 oracle, whose shards are uneven."""
    tokens, sinks = 1000, "causal & (window(255, 0) | sink(16))"
    return (
        Case("in one pass", sinks, tokens, heads, dim, mode="fetch", overlap=False),
        Case("in parts", sinks, tokens, heads, dim, mode="fetch", overlap=True),
        Case("common keys", sinks, tokens, heads, dim, mode="fetch", common=True),
        Case("random per head", random_per_head(0.2, tokens, heads), tokens, heads, dim, per_head=True),
        Case("causal in a ring", "causal", tokens, heads, dim, mode="ring"),
        Case("rows without keys", "window(63, 0) & ~window(9, 0)", tokens, heads, dim),
    )
