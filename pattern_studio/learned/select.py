"""select: from tile scores to a block mask, by a budget or by a coverage, on the scores' device.

A choice may look at all queries of a block, so under causal attention a query's keys can depend on the
queries after it in its own block (on later blocks only with `probes`
and `vertical_slash`, which read an item's last queries). That is so for every block-wise choice.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import StudioError
from ..problem import whole
from . import programs
from .narrowed import Narrowed
from .tables import kept_table
from .tiling import Tiling, check_lengths

if TYPE_CHECKING:  # Triton is not on every machine
    from .programs.chosen import Rows

Frame = tuple[Tensor, Tensor, Tensor]
SLACK = 1e-9  # of a product of a printed density and a count, and of sums of probabilities


@torch.no_grad()
def top_k(
    scores: Tensor,
    tiling: Tiling,
    density: float,
    *,
    sinks: int = 1,
    diagonal: bool = True,
    lengths: Tensor | None = None,
    narrowed: Narrowed | None = None,
) -> Tensor:
    """The best tiles of each row at a block density, to the tile.

    Each head of each item keeps exactly `floor(density * visible tiles)` tiles: the protected ones, and of
    the others each row's best, as many as its share of the visible ones. Equal scores go to the lower key.
    Nothing waits for the device, and items are chosen apart from each other.

    Args:
        scores: [batch, heads, q_blocks, kv_blocks] of any floating dtype, higher is better.
        density: share of the visible tiles (causal: those of the causal triangle) that is kept, above 0, up to 1.
        sinks: tiles of the first `sinks` keys are protected.
        diagonal: tiles that hold a query's own position are protected. Together with sinks they can cost more
            than a small density pays for: an error, or, for items that `lengths` makes short, kept all the same.
        lengths: int64 [batch], where items are padded on the right.
        narrowed: masks of any kind, in place of `lengths`; sinks are then an item's first keys that take part.

    Returns:
        bool [batch, heads, q_blocks, kv_blocks], False on tiles that are not visible.

    >>> tiling = Tiling(q_len=8, kv_len=8, block=2)
    >>> top_k(torch.arange(16.0).view(1, 1, 4, 4), tiling, density=0.8)[0, 0].int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    """
    _check(scores, tiling, lengths)
    sinks = _budget(tiling, density, sinks, diagonal, lengths is None and narrowed is None)
    if programs.served(scores) and tiling.kv_blocks <= programs.LONGEST_ROW:
        from .programs.best import best_tiles

        if lengths is None and narrowed is None:
            return best_tiles(scores, *kept_table(_plain, tiling, scores.device, float(density), sinks, diagonal))
        visible, kept = _frame(scores, tiling, sinks, diagonal, lengths, narrowed)
        return best_tiles(scores, visible, kept, _row_budget(visible.sum(-1), kept.sum(-1), float(density)))
    visible, kept = _frame(scores, tiling, sinks, diagonal, lengths, narrowed)
    budget = _row_budget(visible.sum(-1), kept.sum(-1), float(density))
    order = _ordered(scores, visible, kept)
    rank = torch.empty_like(order).scatter_(
        -1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order)
    )
    return (rank < budget[..., None]) & visible


@torch.no_grad()
def top_p(
    scores: Tensor,
    tiling: Tiling,
    coverage: float,
    *,
    sinks: int = 1,
    diagonal: bool = True,
    lengths: Tensor | None = None,
    narrowed: Narrowed | None = None,
) -> Tensor:
    """The fewest tiles of each row whose predicted mass, with that of the protected ones, reaches `coverage`.

    `scores` are logarithms of mass, up to a constant per row, as `pooled` and its like and the gate give
    them. Arguments and result as for `top_k`; how dense the result is, the scores decide.

    >>> scores = torch.tensor([[0.0, -9, -9], [0, 1, -9], [2, 1, 0]])[None, None]
    >>> top_p(scores, Tiling(q_len=3, kv_len=3, block=1), coverage=0.8, sinks=0)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    if isinstance(coverage, bool) or not isinstance(coverage, (int, float)) or not 0 < coverage <= 1:
        raise StudioError(f"a coverage lies above 0 and up to 1, got {coverage!r}; it is the mass to reach in each row")
    _check(scores, tiling, lengths)
    visible, kept = _frame(scores, tiling, sinks, diagonal, lengths, narrowed)
    order = _ordered(scores, visible, kept)
    mass = predicted(scores, visible).gather(-1, order)
    before = pad(mass.cumsum(-1), (1, -1))
    mask = torch.empty_like(order, dtype=torch.bool).scatter_(-1, order, before < coverage - SLACK)
    return (mask | kept) & visible


def predicted(scores: Tensor, visible: Tensor) -> Tensor:
    """Each tile's predicted share of its row's mass, float64; rows add up to 1, or to 0 where nothing is visible."""
    finite = torch.where(visible, _finite(scores), -math.inf)
    return torch.where(visible, torch.softmax(finite.double(), -1), 0)


def _check(scores: Tensor, tiling: Tiling, lengths: Tensor | None) -> None:
    """StudioError unless these are scores of the tiling, and lengths of the scores."""
    shape = (tiling.q_blocks, tiling.kv_blocks)
    if not isinstance(scores, Tensor) or scores.dim() != 4 or tuple(scores.shape[2:]) != shape:
        got = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise StudioError(f"expected scores [batch, heads, {shape[0]}, {shape[1]}] for this tiling, got {got}")
    check_lengths(lengths, scores)


def _frame(
    scores: Tensor, tiling: Tiling, sinks: int, diagonal: bool, lengths: Tensor | None, narrowed: Narrowed | None
) -> tuple[Tensor, Tensor]:
    """Visible and protected tiles, bool [1 or batch, 1 or heads, q_blocks, kv_blocks]."""
    real = Narrowed.of_lengths(lengths, tiling) if narrowed is None else narrowed
    sinks, device = whole("sinks", sinks, 0), scores.device
    visible = real.visible(tiling, device)
    kept = real.sinks(tiling, sinks, device) & visible
    if diagonal:
        kept = kept | tiling.diagonal(device)[:, None] & visible
    return visible, kept


def _finite(scores: Tensor) -> Tensor:
    """Scores without NaN and infinities, so that no input can displace a protected tile."""
    most = torch.finfo(torch.float32).max
    return scores.detach().float().nan_to_num(nan=-most, posinf=most, neginf=-most)


def _ordered(scores: Tensor, visible: Tensor, kept: Tensor) -> Tensor:
    """Each row's tiles from best to worst, int64: protected, then visible by score, then the others."""
    key = torch.where(kept, math.inf, torch.where(visible, _finite(scores), -math.inf))
    return torch.sort(key, dim=-1, descending=True, stable=True).indices


def _row_budget(visible: Tensor, kept: Tensor, density: float) -> Tensor:
    """Tiles of each row, int64 [..., q_blocks]: they add up to floor(density * visible), or to what is kept if more."""
    total, least = visible.sum(-1, keepdim=True), kept.sum(-1, keepdim=True)
    extra = ((total.double() * (density + SLACK)).floor().long() - least).clamp(min=0)
    # Shares of `extra` by what is still free in each row, rounded on the running sum so that none is lost.
    free = visible - kept
    extra = torch.minimum(extra, total - least)
    shares = free.cumsum(-1) * extra // free.sum(-1, keepdim=True).clamp(min=1)
    return kept + shares - pad(shares, (1, -1))


def _plain(tiling: Tiling, device: torch.device, density: float, sinks: int, diagonal: bool) -> Frame:
    """Visible tiles, protected ones and rows' budgets where nothing is padded."""
    visible = tiling.visible(device)[:, None]
    kept = tiling.sinks(device, sinks)[:, None]
    if diagonal:
        kept = kept | tiling.diagonal(device)[:, None]
    return visible, kept, _row_budget(visible.sum(-1), kept.sum(-1), density).int()


def _rows(tiling: Tiling, device: torch.device, density: float, sinks: int, diagonal: bool) -> Rows:
    """What `rows_of` gives where nothing is padded."""
    from .programs.chosen import Rows

    return Rows.of(*(x[:, 0] for x in _plain(tiling, device, density, sinks, diagonal)))


def rows_of(q: Tensor, tiling: Tiling, density: float, sinks: int, diagonal: bool, lengths: Tensor | None) -> Rows:
    """Hidden, free and protected tiles and the rows' budgets for the program that scores and chooses.

    `q`: a tensor of the scores' batch and device. Errors are those of `top_k`.
    """
    sinks = _budget(tiling, density, sinks, diagonal, lengths is None)
    check_lengths(lengths, q)
    if lengths is None:
        return kept_table(_rows, tiling, q.device, float(density), sinks, diagonal)
    from .programs.chosen import Rows

    visible, kept = _frame(q, tiling, sinks, diagonal, lengths, None)
    budget = _row_budget(visible.sum(-1), kept.sum(-1), float(density))
    return Rows.of(visible[:, 0], kept[:, 0], budget[:, 0])


def _budget(tiling: Tiling, density: float, sinks: int, diagonal: bool, plain: bool) -> int:
    """`sinks` as a number; StudioError for a density that is none or, where nothing is padded, pays for too little."""
    if isinstance(density, bool) or not isinstance(density, (int, float)) or not 0 < density <= 1:
        raise StudioError(f"a block density lies above 0 and up to 1, got {density!r}; it is the share that is kept")
    sinks = whole("sinks", sinks, 0)
    if plain:
        _affordable(tiling, float(density), sinks, diagonal)
    return sinks


@lru_cache(maxsize=256)
def _affordable(tiling: Tiling, density: float, sinks: int, diagonal: bool) -> None:
    """StudioError where the protected tiles cost more than the density pays for; counted once on the host."""
    total, least = tiling.counts(sinks, diagonal)
    allowed = math.floor(total * (density + SLACK))
    if least > allowed:
        raise StudioError(
            f"a block density of {density:g} pays for {allowed:,} of the {total:,} visible tiles, but the protected "
            f"sinks and diagonal take {least:,}: ask for at least {math.ceil(1e4 * least / total) / 1e4:g}, protect "
            "fewer (sinks=0, diagonal=False), or take smaller query blocks"
        )
