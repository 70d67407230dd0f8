"""Fit a pattern to a capture, and set it beside the best tiles for the budget and static patterns of its density."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pattern_studio import Pattern, Problem, StudioError, lower
from pattern_studio.generators import GENERATORS

from .captures import Source
from .fit_spec import ANY, BY_DISTANCE, FREE, LATER, LAYOUTS, LOSS, FitSpec
from .tasks import Task

if TYPE_CHECKING:
    from pattern_studio.capture import Capture
    from pattern_studio.learned import Fitted

# The static patterns: one for all heads, made from the density alone. title -> (generator, its arguments)
STATIC: dict[str, tuple[str, dict[str, Any]]] = {
    "Window": ("local_window", {}),
    "Window + 4 sinks": ("local_window", {"sinks": 4}),
    "Dilated window": ("dilated_sparse", {}),
    "Global + local": ("global_local", {}),
    "Hierarchical": ("hierarchical", {}),
}
STEPS = 2 + len(STATIC)  # of a fit that is watched


@dataclass(frozen=True)
class Line:
    """A choice of tiles and what it keeps: mean recall of the rows the fit saw, and of the held-out ones.

    `density` is the block density of the model's own dense mask; None stands for what is not measured, and `note` says
    why.
    """

    title: str
    density: float | None
    seen: float | None
    unseen: float | None
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """A finished fit: what was asked, the pattern, its line and those beside it, and on which rows of which text.

    `heads` is each layer's number of query heads, `tokens` the length that the pattern was fitted at.
    """

    spec: FitSpec
    fitted: Fitted
    lines: tuple[Line, ...]
    capture: str
    heads: Mapping[int, int]
    tokens: int


def fit(spec: FitSpec, source: Source, second: Source | None, task: Task) -> Fit:
    """Fit, then measure what stands beside it; minutes for long captures. `second` is another text of the same model.

    Raises:
        StudioError: the budget does not pay for the floors, the captures do not match, or the first has no gradients
            to choose by.
        Stopped: the visitor has stopped it.
    """
    task.say("Reading the capture", 0)
    capture, other = source.load(), second and second.load()
    with task.watching():
        title = LAYOUTS[spec.layout][0].lower() + (", by loss" if spec.by == LOSS else "")
        task.say(f"Fitting {title} to {len(capture.layers)} layers of {len(capture.tokens):,} tokens", 0)
        fitted = _fitted(spec, capture, other)
        known = _known(spec, capture, other)
        seen, later = range(known), range(known, len(capture.tokens))
        task.say("Finding the best tiles for the same budget", 1)
        lines = [_own(title, fitted), _oracle(fitted, capture, other, seen, later)]
        for n, name in enumerate(STATIC):
            task.say(f"Measuring a static pattern at the same density: {name}", 2 + n)
            lines.append(_static(name, fitted, capture, other, seen, later))
    task.say("Done", STEPS)
    heads = {number: layer.heads for number, layer in capture.layers.items()}
    return Fit(spec, fitted, tuple(lines), source.title, heads, len(capture.tokens))


def _fitted(spec: FitSpec, capture: Capture, other: Capture | None) -> Fitted:
    from pattern_studio.learned import FAMILIES, fit_blocks, fit_family

    by_loss = spec.by == LOSS
    gradients = capture.gradients if by_loss else None
    if by_loss and gradients is None:
        raise StudioError(
            "expected a capture with gradients to choose by what the loss minds, got one without; record it with "
            "pattern-studio capture --gradients, or choose by attention mass"
        )
    if spec.layout == FREE:
        return fit_blocks(
            capture,
            spec.density,
            spec.block,
            row_floor=spec.floor,
            head_floor=spec.floor,
            held_out=other,
            gradients=gradients,
            by_distance=BY_DISTANCE if by_loss else 0.0,
        )
    names = tuple(FAMILIES) if spec.layout == ANY else (spec.layout,)
    rows = _known(spec, capture, other)
    return fit_family(
        names,
        capture,
        spec.density,
        spec.block,
        fit_rows=None if rows == len(capture.tokens) else rows,
        head_floor=spec.floor,
        held_out=other,
        gradients=gradients,
    )


def _known(spec: FitSpec, capture: Capture, other: Capture | None) -> int:
    """How many rows the fit may look at: all, or half of the query blocks where the others are held out."""
    tokens = len(capture.tokens)
    half = tokens // 2 // spec.block_q * spec.block_q
    wanted = other is None and spec.held_out == LATER and spec.spares_rows and capture.causal
    return half if wanted and half else tokens


def _own(title: str, fitted: Fitted) -> Line:
    held_out = fitted.held_out
    return Line(f"Fitted: {title}", fitted.achieved, fitted.fit.mean, held_out and held_out.mean)


def _oracle(fitted: Fitted, capture: Capture, other: Capture | None, seen: range, later: range) -> Line:
    first = best_recall(fitted.pattern, capture, fitted.block, seen)
    unseen = _elsewhere(lambda c, rows: best_recall(fitted.pattern, c, fitted.block, rows), capture, other, later)
    return Line("Oracle: best tiles, answer known", fitted.achieved, first, unseen)


def _static(name: str, fitted: Fitted, capture: Capture, other: Capture | None, seen: range, later: range) -> Line:
    generator, arguments = STATIC[name]
    problem = Problem(len(capture.tokens))
    try:
        made = GENERATORS[generator](fitted.achieved, problem, fitted.block, causal=capture.causal, **arguments)
    except StudioError as error:
        return Line(name, None, None, None, str(error))
    density = made.achieved.block_of_causal if capture.causal else made.achieved.block

    def kept(one: Capture, rows: range) -> float:
        return recall(made.pattern, one, fitted.block, rows)

    return Line(name, density, kept(capture, seen), _elsewhere(kept, capture, other, later))


def _elsewhere(
    measure: Callable[[Capture, range], float], capture: Capture, other: Capture | None, later: range
) -> float | None:
    """A measure of held-out rows: of another text where there is one, else of this one's later rows, if any."""
    if other is not None:
        return measure(other, range(len(other.tokens)))
    return measure(capture, later) if later else None


def recall(pattern: Pattern, capture: Capture, block: tuple[int, int], rows: range) -> float:
    """Mean mass recall of some rows, over all layers and heads."""
    from pattern_studio.metrics import row_recall

    kept = [row_recall(pattern, capture, n, block)[:, rows.start : rows.stop].mean(1) for n in capture.layers]
    values = np.concatenate(kept)
    return math.fsum(values.tolist()) / len(values)


def best_recall(pattern: Pattern, capture: Capture, block: tuple[int, int], rows: range) -> float:
    """Mean mass that the best tiles hold in some rows, as many in each head as the pattern has there.

    `rows` are whole query blocks, or end with the last one.
    """
    from pattern_studio.metrics import block_mass

    first, last = rows.start // block[0], -(-rows.stop // block[0])
    values: list[float] = []
    for number, layer in capture.layers.items():
        mass = block_mass(capture, number, block)[:, first:last].astype(np.float64)
        height = np.minimum(block[0], rows.stop - np.arange(first, last) * block[0])
        layout = lower(pattern, Problem(layer.tokens, heads=layer.heads), block=block, layer=number)
        for head in range(layer.heads):
            tiles = int((layout.tile_kinds(head)[first:last] > 0).sum())
            held = np.sort((mass[head] * height[:, None]).ravel())
            values.append(math.fsum(held[len(held) - tiles :].tolist()) / len(rows))
    return math.fsum(values) / len(values)
