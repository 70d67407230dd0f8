"""The work table of the Hopper programs: 128-row tiles of every batch entry and head, in the order of work."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..triton.lists import TileLists

ROWS = 128  # of a tile of the table: two consumers with 64 each
MASKED_COST = 1.25  # of a masked tile against a full one
LONG = 2.0  # times the mean cost: such lines are begun first, whatever their head


@dataclass(frozen=True, eq=False)
class Work:
    """What the programs of one call walk, on the device.

    items int32 [entries, 4 + 4 * members]: batch, head, first row, the first row of the part's scratch or
    -1; then, for each member, first masked tile, masked tiles, first full tile, full tiles. counts int32
    [2]: how many entries have tiles, and how many are in use; those without tiles come after those with,
    unused ones last. For lists by queries a head is a query head and has one member, itself; for lists by
    keys it is a key head, whose members are the query heads that read it, and rows are keys.
    """

    items: Tensor
    counts: Tensor


def work_of(lists: TileLists, batch: int, heads: int, members: int = 1) -> Work:
    """The table for `batch` entries and `heads` heads; made once for lists and sizes, without a host sync."""
    made = vars(lists).setdefault("_hopper_work", {})
    if (batch, heads, members) not in made:
        made[batch, heads, members] = _work(lists, batch, heads, members)
    return made[batch, heads, members]


def _work(lists: TileLists, batch: int, heads: int, members: int) -> Work:
    device = lists.jobs.device
    group = lists.head_group.expand(batch, heads * members).long().view(batch, heads, members)
    line, part, parts, slot = lists.jobs[group[..., 0]].long().unbind(-1)  # [batch, heads, jobs] each
    n_jobs, row_tiles = line.shape[-1], lists.line_size // ROWS
    owner = (group[:, :, None, :] * lists.lines + line[..., None]).clamp(min=0)  # [batch, heads, jobs, members]
    begin_part, parts = part.clamp(min=0)[..., None], parts.clamp(min=1)[..., None]

    def share(pointers: Tensor) -> tuple[Tensor, Tensor]:
        begin, end = pointers[owner].long(), pointers[owner + 1].long()
        first, stop = (end - begin) * begin_part // parts, (end - begin) * (begin_part + 1) // parts
        return begin + first, stop - first

    masked_begin, masked = share(lists.masked_ptr)
    full_begin, full = share(lists.full_ptr)
    cost = torch.where(line >= 0, (full + MASKED_COST * masked).sum(-1), -1.0)

    place = torch.arange(batch * heads, device=device).view(batch, heads, 1)
    scratch = torch.where(slot >= 0, (place * lists.slots + slot) * lists.line_size, -1)
    down = torch.arange(row_tiles, device=device) * ROWS  # [row_tiles]
    shape = batch, heads, n_jobs, row_tiles
    own = (
        (place // heads)[..., None],
        (place % heads)[..., None],
        (line * lists.line_size)[..., None] + down,
        torch.where(slot[..., None] >= 0, scratch[..., None] + down, -1),
    )
    head = torch.stack([x.expand(shape) for x in own], -1)
    tiles = torch.stack([masked_begin, masked, full_begin, full], -1)[:, :, :, None].expand(*shape, members, 4)
    items = torch.cat([head, tiles.flatten(4)], -1).flatten(0, 3)
    # Long lines first; then one head after another, so that what programs read and add to stays in the L2 cache.
    mean = cost.clamp(min=0).sum() / (cost > 0).sum().clamp(min=1)
    rank = torch.where(cost > LONG * mean, 0, torch.where(cost > 0, 1, torch.where(cost == 0, 2, 3)))
    key = (rank * (batch * heads) + place).long() * 2**32 - (cost * 4).long()
    order = key[..., None].expand(shape).flatten().sort(stable=True).indices
    counts = torch.stack([(cost > 0).sum(), (cost >= 0).sum()]) * row_tiles
    return Work(items[order].int(), counts.int())
