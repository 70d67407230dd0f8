"""Subject: one layer of a capture, with the pattern that is measured on it lowered for its heads and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..assignment import Assignment
from ..capture import Capture, LayerCapture, LayerMinds
from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout
from ..lowering import lower
from ..patterns import PRIMITIVES
from ..problem import Problem, whole
from .layouts import lower_causal_part


@dataclass(frozen=True, eq=False)
class Subject:
    """What a metric measures.

    D, the capture's own dense mask, is causal or full. `layout` is the pattern as it was given, and
    what a kernel would run; `kept` is what of it lies in D (the same object where all of it does).
    Only `kept` counts as kept mass. `causal_part` is the layout of `causal & pattern`.
    """

    number: int
    capture: Capture
    layout: BlockLayout
    causal_part: BlockLayout

    @property
    def layer(self) -> LayerCapture:
        """The layer's q, k and v."""
        return self.capture.layers[self.number]

    @property
    def weight(self) -> float | None:
        """How much the model's loss minds this layer beside the capture's others, None where that is not known."""
        weights = self.capture.sensitivity
        return None if weights is None else weights[list(self.capture.layers).index(self.number)]

    @property
    def minds(self) -> LayerMinds | None:
        """What the model minds of this layer's rows and outputs, None where that is not known."""
        minds = self.capture.minds
        return None if minds is None else minds.layers[self.number]

    @property
    def kept(self) -> BlockLayout:
        """The layout of the pattern inside D."""
        return self.causal_part if self.capture.causal else self.layout

    @property
    def dense_pairs(self) -> int:
        """Pairs of D, summed over heads."""
        tokens = self.layer.tokens
        return self.layer.heads * (tokens * (tokens + 1) // 2 if self.capture.causal else tokens * tokens)


def subjects(
    pattern: Pattern,
    capture: Capture,
    *,
    block: int | tuple[int, int] = 128,
    layers: Sequence[int] | None = None,
    docs: tuple[int, ...] | None = None,
) -> list[Subject]:
    """The chosen layers of a capture (all by default), each with the pattern lowered for it.

    Layers whose heads have the same patterns share their layouts. Raises StudioError where a layer
    is not in the capture, or the pattern does not fit the capture's heads or tokens.

    >>> from pattern_studio.capture import bundled
    >>> [s.number for s in subjects(PRIMITIVES["causal"], bundled())]
    [7, 20]
    """
    if not isinstance(pattern, Pattern):
        raise StudioError(f"expected a Pattern, got {type(pattern).__name__}; read text with parse()")
    lowered: dict[tuple[Pattern, ...], tuple[BlockLayout, BlockLayout]] = {}
    found = []
    for number in chosen_layers(capture, layers):
        heads = capture.layers[number].heads
        _check_heads(pattern, heads, number)
        try:
            resolved = tuple(pattern.resolve(head, number) for head in range(heads))
        except StudioError as error:
            raise StudioError(f"the capture has {heads} heads in layer {number}, but {error}") from error
        if resolved not in lowered:
            problem = Problem(capture.layers[number].tokens, heads=heads, docs=docs)
            layout = lower(pattern, problem, block=block, layer=number)
            lowered[resolved] = layout, lower_causal_part(pattern, layout, number)
        found.append(Subject(number, capture, *lowered[resolved]))
    return found


def dense_subject(capture: Capture, layer: int, block: int | tuple[int, int]) -> Subject:
    """A layer under its own dense mask: for what is asked of the dense attention alone."""
    own = PRIMITIVES["causal" if capture.causal else "dense"]
    return subjects(own, capture, block=block, layers=[layer])[0]


def chosen_layers(capture: Capture, layers: Sequence[int] | None) -> list[int]:
    """The layer numbers to measure, checked; all of the capture's by default."""
    if not isinstance(capture, Capture):
        raise StudioError(f"expected a Capture, got {type(capture).__name__}; read a file with Capture.load()")
    if isinstance(layers, int):
        raise StudioError(f"expected a list of layers, got {layers}; write layers=[{layers}]")
    have = list(capture.layers)
    chosen = have if layers is None else [whole("a layer", layer, 0) for layer in layers]
    missing = [layer for layer in chosen if layer not in capture.layers]
    if missing or not chosen or len(set(chosen)) < len(chosen):
        raise StudioError(
            f"expected distinct layers among the capture's {have}, got {chosen}; choose from these, "
            "or record a capture with the layers that you want"
        )
    return chosen


def _check_heads(pattern: Pattern, heads: int, layer: int) -> None:
    # A head too few is an error of resolve(); a head too many would be measured on nothing.
    assigned = max(_assigned_heads(pattern), default=-1)
    if assigned >= heads:
        raise StudioError(
            f"expected a pattern for the {heads} heads that the capture has in layer {layer}, got heads() that goes up "
            f"to head {assigned}; assign heads 0 to {heads - 1}, or use a capture of the model that the pattern is for"
        )


def _assigned_heads(pattern: Pattern) -> Iterator[int]:
    if isinstance(pattern, Assignment) and pattern.unit == "head":
        yield from (span if isinstance(span, int) else span[-1] for span, _ in pattern.cases)
    for part in pattern.parts():
        yield from _assigned_heads(part)
