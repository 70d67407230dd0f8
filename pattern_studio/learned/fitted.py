"""Fitted: a pattern made from a capture, with its budget and what it was measured to keep, and on which tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture import Capture
from ..errors import StudioError
from ..expr import Pattern
from ..metrics import row_recall
from ..patterns import PRIMITIVES
from .tiling import Tiling

LAYERS = PRIMITIVES["layers"]


@dataclass(frozen=True)
class Measured:
    """Mass recall of query rows: its mean over all layers and heads, and each layer's heads.

    `on` says which rows of which text, and whether the fit saw them.
    """

    on: str
    mean: float
    heads: Mapping[int, tuple[float, ...]]


@dataclass(frozen=True)
class Fitted:
    """A static pattern fitted to a capture.

    `requested` is the block density asked for, over all heads and layers together, of the tiles of the
    model's own dense mask (causal: the triangle's); `tiles` of the `tiles_allowed` that it pays for are
    active. `density` is each head's own. `fit` is measured on the rows that the fit was made from,
    `held_out` on others (None where there were none): only that one says what a new text would keep.
    """

    pattern: Pattern
    method: str
    block: tuple[int, int]
    requested: float
    tiles: int
    tiles_allowed: int
    tiles_total: int
    density: Mapping[int, tuple[float, ...]]
    fit: Measured
    held_out: Measured | None

    @property
    def achieved(self) -> float:
        """The block density that was reached, never above the requested one."""
        return self.tiles / self.tiles_total

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""

        def recall(measured: Measured | None) -> dict[str, Any] | None:
            if measured is None:
                return None
            return {"on": measured.on, "mean": measured.mean, "heads": _lists(measured.heads)}

        return {
            "method": self.method,
            "pattern": str(self.pattern),
            "block": list(self.block),
            "requested_block_density": self.requested,
            "achieved_block_density": self.achieved,
            "tiles": self.tiles,
            "tiles_allowed": self.tiles_allowed,
            "tiles_total": self.tiles_total,
            "density": _lists(self.density),
            "fit": recall(self.fit),
            "held_out": recall(self.held_out),
        }


def measured(
    pattern: Pattern, capture: Capture, layers: Sequence[int], block: tuple[int, int], rows: range, seen: str
) -> Measured:
    """Mass recall of a pattern on some rows of a capture; `seen` says what the fit knew of them."""
    heads = {
        layer: tuple(row_recall(pattern, capture, layer, block)[:, rows.start : rows.stop].mean(1).tolist())
        for layer in layers
    }
    everything = [value for each in heads.values() for value in each]
    on = f"rows {rows.start} to {rows.stop - 1} of {capture.text} ({seen})"
    return Measured(on, math.fsum(everything) / len(everything), heads)


def budget(density: object, tiling: Tiling, heads: int) -> tuple[int, int]:
    """Tiles that a density pays for over so many heads, and all there are; StudioError for no density."""
    if isinstance(density, bool) or not isinstance(density, (int, float)) or not 0 < density <= 1:
        raise StudioError(f"a block density lies above 0 and up to 1, got {density!r}; it is the share that is kept")
    total = tiling.counts(0, False)[0] * heads
    return math.floor(total * (density + 1e-9)), total


def share(name: str, value: object, of: str = " of the mean budget", usual: float = 0.25) -> float:
    """A share from 0 to 1, or a StudioError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise StudioError(f"{name} is a share{of} from 0 to 1, got {value!r}; {usual} is usual")
    return float(value)


def by_layer(patterns: Mapping[int, Pattern]) -> Pattern:
    """`layers({...})`, or the pattern of the one layer there is.

    >>> str(by_layer({7: PRIMITIVES["causal"], 20: PRIMITIVES["dense"]}))
    'layers({7: causal, 20: dense})'
    """
    return LAYERS(dict(patterns)) if len(patterns) > 1 else next(iter(patterns.values()))


def _lists(values: Mapping[int, tuple[float, ...]]) -> dict[str, list[float]]:
    return {str(layer): list(each) for layer, each in values.items()}
