"""fit_blocks: the block layout of the tiles that a capture needs most, under a budget shared by all heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..capture import Capture, LossGradients
from ..errors import StudioError
from ..metrics import block_mass
from ..metrics.subject import chosen_layers
from ..problem import block_shape, whole
from .fitted import Fitted, budget, by_layer, measured, share
from .tile_importance import mean_by_distance, tile_importance
from .tiling import Tiling
from .to_pattern import to_pattern


def fit_blocks(
    capture: Capture,
    density: float,
    block: int | tuple[int, int] = 128,
    *,
    row_floor: float = 0.25,
    head_floor: float = 0.25,
    sinks: int = 1,
    diagonal: bool = False,
    layers: Sequence[int] | None = None,
    held_out: Capture | None = None,
    gradients: LossGradients | None = None,
    by_distance: float = 0.0,
) -> Fitted:
    """The tiles that hold most dense mass, or that the loss minds most, at a block density over all heads and layers.

    What is never given up: the protected tiles; of each query block's mean share of the budget the part
    `row_floor`, spent on its own best tiles; of each head's the part `head_floor`. A budget that only
    chases mass starves rows and heads, and costs more loss than its recall says. The rest goes to the
    tiles of most mass, whichever head and layer they are in. With `gradients` it is the importance of tiles to the
    loss instead of their mass, everywhere. What free tiles keep of one text they do not keep of the next:
    `by_distance` draws a tile's worth towards the mean of its diagonal, and so the choice towards diagonals.

    Args:
        capture: q, k of a real model; its own dense mask is what the density is a share of.
        density: above 0, up to 1. `floor(density * tiles)` tiles are kept, exactly.
        block: one number or (block_q, block_k) tokens, down to single keys.
        sinks: tiles of the first keys are protected; with 1 no row of a causal model is ever empty.
        diagonal: tiles of a query's own position are protected.
        layers: layers of the capture, by default all.
        held_out: another text read by the same model at the same length, for an honest recall.
        gradients: of the loss on the capture's text, from `loss_gradients` or its own (`capture.gradients`): tiles go
            by `tile_importance`.
        by_distance: share, 0 to 1, of a tile's worth that is the mean over the head's tiles as far from their queries,
            protected ones left out; at 1 those count alike.

    Raises StudioError where the floors and the protected tiles cost more than the budget, the captures do not
    match, or the gradients are not of the capture. Memory: the mass of every tile of all layers.

    >>> from pattern_studio.capture import bundled
    >>> found = fit_blocks(bundled(), 0.1, (64, 8), layers=[20])
    >>> found.tiles == found.tiles_allowed, round(found.achieved, 5), round(found.fit.mean, 3)
    (True, 0.09998, 0.703)
    """
    shape, numbers = block_shape(block), chosen_layers(capture, layers)
    tiling = Tiling(len(capture.tokens), len(capture.tokens), shape, None, capture.causal)
    heads = [capture.layers[number].heads for number in numbers]
    allowed, total = budget(density, tiling, sum(heads))
    if held_out is not None:
        _match(capture, held_out, numbers)
    device = capture.layers[numbers[0]].q.device
    visible = tiling.visible(device)[0]
    kept = tiling.sinks(device, whole("sinks", sinks, 0))[0]
    kept = kept | tiling.diagonal(device)[0] if diagonal else kept
    first, last = tiling.rows(device)
    rows = (last - first + 1)[0, :, None]
    # [heads of all layers, q_blocks, kv_blocks]: summed over rows, below all others where nothing is visible.
    worth = torch.cat(
        [
            torch.from_numpy(block_mass(capture, number, shape)).to(device) * rows
            if gradients is None
            else tile_importance(capture, gradients, number, shape)
            for number in numbers
        ]
    )
    if mean := share("by_distance", by_distance, " of a tile's worth", 0.5):
        worth = (1 - mean) * worth + mean * mean_by_distance(worth, tiling, kept)
    worth = torch.where(visible, worth, -1)
    at_least = (visible.sum(1) * share("row_floor", row_floor) * density + 1e-9).floor().long()
    mask = _floors(worth, kept, at_least, int(share("head_floor", head_floor) * allowed / sum(heads)))
    left = allowed - int(mask.sum())
    if left < 0:
        raise StudioError(
            f"a block density of {density:g} pays for {allowed:,} of the {total:,} tiles, but the floors and the "
            f"protected tiles take {allowed - left:,}: ask for more, lower row_floor and head_floor, or protect fewer"
        )
    free = torch.where(mask, -1, worth).flatten()
    mask.view(-1)[free.topk(left).indices] = True
    patterns = {
        number: to_pattern(part, shape, causal=capture.causal)
        for number, part in zip(numbers, mask.split(heads), strict=True)
    }
    pattern, everything = by_layer(patterns), range(len(capture.tokens))
    return Fitted(
        pattern=pattern,
        method="diagonals" if by_distance == 1 else "blocks",
        block=shape,
        requested=float(density),
        tiles=int(mask.sum()),
        tiles_allowed=allowed,
        tiles_total=total,
        density={
            number: tuple((part.sum((1, 2)) / visible.sum()).tolist())
            for number, part in zip(numbers, mask.split(heads), strict=True)
        },
        fit=measured(pattern, capture, numbers, shape, everything, "fitted to these rows"),
        held_out=held_out and measured(pattern, held_out, numbers, shape, everything, "another text than the fit's"),
    )


def _floors(worth: Tensor, kept: Tensor, at_least: Tensor, per_head: int) -> Tensor:
    """Protected tiles and what each row and head gets at least, bool as `worth`."""
    order = torch.sort(torch.where(kept, torch.inf, worth), dim=-1, descending=True, stable=True).indices
    places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, places)
    mask = (rank < torch.maximum(at_least, kept.sum(1))[:, None]) & (worth >= 0)
    for head, one in enumerate(mask):  # a view: what is set in it is set in the mask
        missing = per_head - int(one.sum())
        if missing > 0:
            best = torch.where(one, -1, worth[head]).flatten().topk(missing).indices
            one.view(-1)[best] = True
    return mask


def _match(capture: Capture, held_out: Capture, numbers: Sequence[int]) -> None:
    """StudioError unless the second capture can judge a layout fitted to the first."""
    chosen_layers(held_out, numbers)
    mine, theirs = (
        (len(c.tokens), c.causal, [c.layers[number].heads for number in numbers]) for c in (capture, held_out)
    )
    if mine != theirs:
        raise StudioError(
            f"expected a held-out capture of {mine[0]} tokens, causal {mine[1]} and heads {mine[2]}, as the "
            f"fitted one, got {theirs[0]}, {theirs[1]} and {theirs[2]}; record both from one model at one length"
        )
