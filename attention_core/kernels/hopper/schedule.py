"""The work table of the Hopper programs: 128-row tiles of every batch entry and head, most work first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..triton.lists import TileLists

ROWS = 128  # of a tile of the table: two consumers with 64 each
MASKED_COST = 1.25  # of a masked tile against a full one


@dataclass(frozen=True, eq=False)
class Work:
    """What the programs of one call walk, on the device.

    items int32 [entries, 8]: batch, query head, first row, first masked tile, masked tiles, first full
    tile, full tiles, and the first row of the part's scratch or -1. counts int32 [2]: how many entries
    have tiles, and how many are in use; those without tiles come after those with, unused ones last.
    """

    items: Tensor
    counts: Tensor


def work_of(lists: TileLists, batch: int, heads: int) -> Work:
    """The table for `batch` entries and `heads` query heads; made once for lists and sizes, without a host sync."""
    made = vars(lists).setdefault("_hopper_work", {})
    if (batch, heads) not in made:
        made[batch, heads] = _work(lists, batch, heads)
    return made[batch, heads]


def _work(lists: TileLists, batch: int, heads: int) -> Work:
    device = lists.jobs.device
    group = lists.head_group.expand(batch, heads).long()  # [batch, heads]
    line, part, parts, slot = lists.jobs[group].long().unbind(-1)  # [batch, heads, jobs] each
    used = line >= 0
    owner = (group[..., None] * lists.lines + line).clamp(min=0)
    part, parts = part.clamp(min=0), parts.clamp(min=1)

    def share(pointers: Tensor) -> tuple[Tensor, Tensor]:
        begin, end = pointers[owner].long(), pointers[owner + 1].long()
        first, stop = (end - begin) * part // parts, (end - begin) * (part + 1) // parts
        return begin + first, stop - first

    masked_begin, masked = share(lists.masked_ptr)
    full_begin, full = share(lists.full_ptr)
    cost = torch.where(used, full + MASKED_COST * masked, -1.0)

    place = torch.arange(batch * heads, device=device).view(batch, heads, 1)
    scratch = torch.where(slot >= 0, (place * lists.slots + slot) * lists.line_size, -1)
    row_tiles = lists.line_size // ROWS
    down = torch.arange(row_tiles, device=device) * ROWS  # [row_tiles]

    def spread(x: Tensor) -> Tensor:
        return x[..., None].expand(batch, heads, line.shape[-1], row_tiles)

    columns = (
        spread(place // heads),
        spread(place % heads),
        spread(line * lists.line_size) + down,
        spread(masked_begin),
        spread(masked),
        spread(full_begin),
        spread(full),
        torch.where(spread(slot) >= 0, spread(scratch) + down, -1),
    )
    # Equal costs stay in order: programs work on one head at a time and share its keys in the L2 cache.
    order = spread(cost).flatten().sort(descending=True, stable=True).indices
    items = torch.stack([c.expand(batch, heads, line.shape[-1], row_tiles) for c in columns], -1).view(-1, 8)
    counts = torch.stack([(cost > 0).sum(), (cost >= 0).sum()]) * row_tiles
    return Work(items[order].int(), counts.int())
