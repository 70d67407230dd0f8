"""settling: the attention mass that a lossy lowering loses and adds, beside the exact one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..capture import Capture
from ..expr import Pattern
from ..layout import BlockLayout
from ..lowering.lossy import Lossy
from ..patterns import PRIMITIVES
from ..problem import block_shape
from .analyzer import analyze
from .subject import subjects


@dataclass(frozen=True)
class LayerSettling:
    """One layer: pairs summed over heads, masses as means over all query rows of all heads."""

    layer: int
    pairs_added: int
    pairs_dropped: int
    rows_emptied: int
    mass_lost: float
    mass_added: float


@dataclass(frozen=True)
class Settling:
    """What a lossy lowering changes on a capture: means over the layers, then each layer."""

    name: str
    mass_lost: float
    mass_added: float
    layers: list[LayerSettling]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return {
            "lowering": self.name,
            "mass_lost": self.mass_lost,
            "mass_added": self.mass_added,
            "layers": [asdict(layer) for layer in self.layers],
        }

    def __str__(self) -> str:
        return f"{self.name}: {self.mass_lost:.4g} of the attention mass lost, {self.mass_added:.4g} added"


def settling(
    pattern: Pattern,
    capture: Capture,
    settle: Callable[[BlockLayout], Lossy],
    *,
    block: int | tuple[int, int] = 128,
    layers: Sequence[int] | None = None,
) -> Settling:
    """How much dense attention a lossy lowering of the pattern loses and adds on a capture.

    `settle` is `cover`, `strict` or a `threshold`. With r the mass recall of the exact pattern, r' that of
    its pairs inside the tiles that stay, and r" that of those tiles whole, `mass_lost = r - r'` and
    `mass_added = r" - r'`: fractions of a row's dense softmax, averaged over rows. Mass is that of the
    capture's own dense mask, so a causal model gives none to the future pairs of a whole diagonal tile.

    Raises StudioError as `analyze` does.

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> found = settling(ps.parse("causal & (window(63, 0) | sink(4))"), bundled(), ps.strict)
    >>> found.layers[0].pairs_dropped, round(found.mass_lost, 3), found.mass_added
    (606186, 0.556, 0.0)
    """
    shape, found, name = block_shape(block), [], ""
    for subject in subjects(pattern, capture, block=shape, layers=layers):
        lossy, heads = settle(subject.layout), range(subject.layout.problem.heads)
        # A capture's rows start at position 0, as those of a list of blocks do.
        listed = {head: PRIMITIVES["blocks"].from_mask(lossy.layout.tile_kinds(head) > 0, shape) for head in heads}
        whole = PRIMITIVES["heads"](listed)
        exact, kept, settled = (_recall(p, capture, subject.number, shape) for p in (pattern, pattern & whole, whole))
        name = lossy.name
        changed = lossy.pairs_added, lossy.pairs_dropped, lossy.rows_emptied
        found.append(LayerSettling(subject.number, *changed, exact - kept, settled - kept))
    return Settling(
        name,
        sum(layer.mass_lost for layer in found) / len(found),
        sum(layer.mass_added for layer in found) / len(found),
        found,
    )


def _recall(pattern: Pattern, capture: Capture, layer: int, block: tuple[int, int]) -> float:
    figures = analyze(pattern, capture, block=block, layers=[layer], metrics=["recall"]).recall
    assert figures is not None  # it was asked for
    return figures.mean
