"""fit_family: the best member of one or more families for each head, under a budget shared by all heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from ..capture import Capture, LayerCapture, LossGradients
from ..errors import StudioError
from ..expr import Pattern
from ..lowering import lower
from ..metrics import row_recall
from ..metrics.subject import chosen_layers
from ..patterns import PRIMITIVES
from ..problem import Problem, block_shape, whole
from .allocate import Option, allocate
from .families import family_members
from .fitted import Fitted, budget, by_layer, measured, share
from .predicted_loss import predicted_loss
from .tiling import Tiling
from .to_pattern import by_head


def fit_family(
    families: str | Sequence[str],
    capture: Capture,
    density: float,
    block: int | tuple[int, int] = 128,
    *,
    fit_rows: int | None = None,
    head_floor: float = 0.25,
    layers: Sequence[int] | None = None,
    held_out: Capture | None = None,
    gradients: LossGradients | None = None,
) -> Fitted:
    """For each head the member of a family, so that mean mass recall is highest at a shared block density.

    With `gradients` it is the sum of the heads' predicted losses that is lowest, instead.

    Members are tried as they are and their recall is measured row by row, so a partial tile counts as
    the pairs it keeps and costs a whole tile. Rows have the floor that a family gives them: none of the
    generators' patterns and no window leaves a causal row empty.

    Args:
        families: one name or several of `FAMILIES`.
        capture: q, k of a real model.
        density: above 0, up to 1, over all heads and layers; never exceeded.
        block: one number or (block_q, block_k) tokens.
        fit_rows: look at the first so many rows (and keys) only, of a causal capture; the rows after
            them are then measured as held out.
        head_floor: each head gets at least this share of the mean budget, where it has so large a member.
        layers: layers of the capture, by default all.
        held_out: another text read by the same model, measured as held out instead of the later rows.
        gradients: of the loss on the capture's text, from `loss_gradients` or its own (`capture.gradients`): members go
            by `predicted_loss`.

    Raises StudioError for a name that is no family, where the cheapest members cost more than the budget, and
    for gradients with `fit_rows` or of another text. Takes a pass over the capture for every member, once for
    all densities.

    >>> from pattern_studio.capture import bundled
    >>> found = fit_family("local_window", bundled(), 0.25, (64, 64), layers=[20])
    >>> found.tiles, found.tiles_allowed, sorted(set(found.density[20]))[-1] > 0.25
    (289, 306, True)
    """
    shape, numbers = block_shape(block), chosen_layers(capture, layers)
    names = (families,) if isinstance(families, str) else tuple(families)
    tokens = len(capture.tokens)
    heads = [capture.layers[number].heads for number in numbers]
    allowed, total = budget(density, Tiling(tokens, tokens, shape, None, capture.causal), sum(heads))
    known = tokens if fit_rows is None else whole("fit_rows", fit_rows, 1, tokens)
    if gradients is not None and fit_rows is not None:
        raise StudioError("gradients are of the loss on the whole text; leave fit_rows out and pass held_out instead")
    members, options = _candidates(names, capture, known, tuple(numbers), shape, gradients)
    taken = allocate(options, allowed, int(share("head_floor", head_floor) * allowed / sum(heads)))
    costs = [options[n][at].cost for n, at in enumerate(taken)]
    cuts = np.cumsum([0, *heads]).tolist()
    spans = {number: slice(a, b) for number, a, b in zip(numbers, cuts, cuts[1:], strict=False)}
    patterns = [members[n][at] for n, at in enumerate(taken)]
    pattern = by_layer({number: by_head(patterns[span]) for number, span in spans.items()})
    return Fitted(
        pattern=pattern,
        method=" + ".join(names),
        block=shape,
        requested=float(density),
        tiles=sum(costs),
        tiles_allowed=allowed,
        tiles_total=total,
        density={number: tuple(n * len(costs) / total for n in costs[span]) for number, span in spans.items()},
        fit=measured(pattern, capture, numbers, shape, range(known), "fitted to these rows"),
        held_out=_held_out(pattern, capture, held_out, numbers, shape, range(known, tokens)),
    )


@lru_cache(maxsize=8)  # the same members serve every density
def _candidates(
    names: tuple[str, ...],
    capture: Capture,
    known: int,
    numbers: tuple[int, ...],
    block: tuple[int, int],
    gradients: LossGradients | None,
) -> tuple[list[list[Pattern]], list[list[Option]]]:
    """Each head's members, all layers after one another, with their tiles and what they are worth on the known rows."""
    problem, seen = Problem(len(capture.tokens)), _first(capture, known)
    frame = PRIMITIVES["causal" if capture.causal else "dense"]
    cost = cache(lambda pattern: lower(frame & pattern, problem, block=block).tiles())
    members, options = [], []
    for number in numbers:
        mine = family_members(names, seen, number, block, problem)
        worth = (
            _recalls(mine, seen, number, block) if gradients is None else _saved(mine, seen, gradients, number, block)
        )
        members += mine
        options += [
            [Option(cost(pattern), float(value)) for pattern, value in zip(each, values, strict=True)]
            for each, values in zip(mine, worth, strict=True)
        ]
    return members, options


def _first(capture: Capture, rows: int) -> Capture:
    """The first rows and keys of a capture, which are a capture of their own where it is causal."""
    if rows == len(capture.tokens):
        return capture
    if not capture.causal:
        raise StudioError(
            "fit_rows cuts a causal capture; in a full one every row sees all keys: pass held_out instead"
        )
    layers = {
        number: LayerCapture(*(tensor[:, :rows] for tensor in layer.named().values()))
        for number, layer in capture.layers.items()
    }
    # What the loss on the whole text minds is not what that on its first rows does.
    return replace(capture, layers=layers, tokens=capture.tokens[:rows], gradients=None)


def _recalls(members: list[list[Pattern]], capture: Capture, layer: int, block: tuple[int, int]) -> NDArray[np.float64]:
    """Mean recall of each head's members on all rows of a capture, [heads, members]."""
    return np.stack(
        [row_recall(by_head(list(each)), capture, layer, block).mean(1) for each in zip(*members, strict=True)], 1
    )


def _saved(
    members: list[list[Pattern]], capture: Capture, gradients: LossGradients, layer: int, block: tuple[int, int]
) -> NDArray[np.float64]:
    """How much less loss than its worst member each head's members are predicted to cost, in nats, [heads, members]."""
    lost = np.stack(
        [predicted_loss(by_head(list(each)), capture, gradients, layer, block) for each in zip(*members, strict=True)],
        1,
    )
    return lost.max(1, keepdims=True) - lost


def _held_out(pattern, capture, held_out, numbers, block, later):
    if held_out is not None:
        everything = range(len(held_out.tokens))
        return measured(pattern, held_out, numbers, block, everything, "another text than the fit's")
    return measured(pattern, capture, numbers, block, later, "not seen by the fit") if later else None
