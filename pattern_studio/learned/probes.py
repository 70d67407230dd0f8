"""probes: vertical and slash lines, and tile scores, from the attention of the last queries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..problem import whole
from . import programs
from .pooled import by_group, hidden
from .tiling import Tiling, check_lengths

FAINT = 1e-30  # mass of a visible tile on which no line that the probes saw falls


@dataclass(frozen=True, eq=False)
class Lines:
    """How much of the probes' attention lies on each key and on each distance, means over the probes.

    vertical: float32 [batch, heads, kv_len], by key.
    slash: float32 [batch, heads, distances], by distance `i - j`, from `first` up.
    first: the distance that `slash` begins with: 0 under causal attention, else negative.
    """

    vertical: Tensor
    slash: Tensor
    first: int


@torch.no_grad()
def probe_lines(
    q: Tensor,
    k: Tensor,
    tiling: Tiling,
    *,
    probes: int = 64,
    scale: float | None = None,
    lengths: Tensor | None = None,
) -> Lines:
    """Attention of each item's last `probes` queries (all, where there are fewer), summed by key and by distance.

    Arguments as for `pooled`. Costs probes / q_len of a dense q k product.

    Source: the vertical-slash heads of MInference (Jiang et al., arXiv:2407.02490).

    >>> q = k = torch.eye(4)[None, None] * 20
    >>> lines = probe_lines(q, k, Tiling.of(q, k, block=2), probes=2)
    >>> lines.vertical[0, 0].tolist(), lines.slash[0, 0].tolist()
    ([0.0, 0.0, 0.5, 0.5], [1.0, 0.0, 0.0, 0.0])
    """
    check_lengths(lengths, q)
    q_len, kv_len, offset = tiling.q_len, tiling.kv_len, tiling.offset
    probes = min(whole("probes", probes, 1), q_len)
    end = torch.full((1,), q_len, device=q.device) if lengths is None else (lengths - offset).clamp(0, q_len)
    row = end[:, None] - probes + torch.arange(probes, device=q.device)  # [1 or batch, probes]
    there, row = row >= 0, row.clamp(min=0)
    if lengths is None:
        chosen = q[:, :, q_len - probes :]
    else:
        chosen = q.gather(2, row[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[3]))
    key = torch.arange(kv_len, device=q.device)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    quick = programs.multiplied(q, k)
    seen = there[..., None] & (key <= (row + offset)[..., None] if tiling.causal else key >= 0)
    if lengths is not None:
        seen = seen & (key < lengths[:, None, None])
    if quick:
        from .programs.tile_mass import BEFORE_ALL, mass_of_tiles

        # Only the products need the programs: [batch, heads, probes, kv_len] is what lines are summed from.
        real, last = None if lengths is None else key < lengths[:, None], torch.where(there, row + offset, BEFORE_ALL)
        scores = mass_of_tiles(chosen, k, last, 1, causal=tiling.causal, scale=factor, real=real)
    else:
        k = k if lengths is None else torch.where(key[:, None] < lengths[:, None, None, None], k, 0)
        scores = (by_group(chosen.float(), k.float()) * factor).masked_fill(~seen[:, None], -torch.inf)
    weight = torch.where(seen.any(-1)[:, None, :, None], torch.softmax(scores, -1), 0)
    count = there.sum(-1).clamp(min=1)[:, None, None]
    first = 0 if tiling.causal else offset - kv_len + 1
    distance = torch.arange(first, max(offset + q_len, first + 1), device=q.device)
    at = (row + offset)[..., None] - distance  # the key at a distance, [1 or batch, probes, distances]
    inside = ((at >= 0) & (at < kv_len))[:, None]
    index = at.clamp(0, max(kv_len - 1, 0))[:, None].expand(*weight.shape[:3], -1)
    slash = torch.where(inside, weight.gather(-1, index), 0).sum(-2) / count
    return Lines(weight.sum(-2) / count, slash, first)


@torch.no_grad()
def probes(
    q: Tensor,
    k: Tensor,
    tiling: Tiling,
    *,
    probes: int = 64,
    scale: float | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Log of each tile's estimated attention mass, from the lines of `probe_lines` that cross it.

    The mass of pair (i, j) is taken as `vertical[j] + slash[i - j]`, summed over the tile's pairs. Cost:
    the probes, then a few operations a tile. Arguments, result and errors as for `pooled`.

    >>> q = k = torch.eye(4)[None, None] * 20
    >>> probes(q, k, Tiling.of(q, k, block=2), probes=2)[0, 0].exp().round(decimals=3).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    lines = probe_lines(q, k, tiling, probes=probes, scale=scale, lengths=lengths)
    block_k, device = tiling.block[1], q.device
    start = torch.arange(tiling.kv_blocks, device=device) * block_k
    stop = (start + block_k).clamp(max=tiling.kv_len)
    # float64: differences of running sums must not lose a faint line beside a strong one.
    column = pad(lines.vertical.double().cumsum(-1), (1, 0))
    vertical = (column[..., stop] - column[..., start])[:, :, None]
    first, last = tiling.rows(device, lengths)
    height = (last - first + 1).clamp(min=0)
    # Sum over i of S(i - start) - S(i - stop), with S the running sum by distance, by running sums of S.
    twice = pad(pad(lines.slash.double().cumsum(-1), (1, 0)).cumsum(-1), (1, 0))

    if programs.multiplied(q, k):
        from .programs.crossed import masses_crossed

        ends = torch.full((1,), tiling.kv_len, device=device) if lengths is None else lengths.clamp(max=tiling.kv_len)
        return masses_crossed(column, twice, (first, last), ends, block_k, lines.first, tiling.causal, FAINT)

    def up_to(distance: Tensor) -> Tensor:
        """Sum of S over all distances below `distance`; S counts the distances below its own argument."""
        at = distance - lines.first + 1
        index = at.clamp(0, twice.shape[-1] - 1)[:, None].expand(*twice.shape[:2], -1, -1)
        beyond = (at - (twice.shape[-1] - 1)).clamp(min=0)[:, None] * (twice[..., -1:] - twice[..., -2:-1])[..., None]
        return twice.gather(-1, index.flatten(2)).unflatten(-1, index.shape[2:]) + beyond

    low, high = first[..., None], (last + 1)[..., None]
    if lengths is not None:  # no key in padding
        stop = torch.maximum(torch.minimum(stop, lengths[:, None, None]), start)
    slash = (up_to(high - start) - up_to(low - start)) - (up_to(high - stop) - up_to(low - stop))
    mass = vertical * height[:, None, :, None] + slash
    return hidden(mass.clamp(min=FAINT).log().float(), tiling, lengths)
