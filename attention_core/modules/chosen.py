"""chosen: tiles that were chosen for a call, and what padding and masks leave of their pairs, as a plan or a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pattern_studio.layout import BlockLayout, Runs, TileKind
from pattern_studio.problem import Problem

from ..block_mask import BlockMask
from ..plan import Plan, plan
from ..plan_from_mask import plan_from_mask

SLAB = 2**24  # pairs of cut tiles that are looked at at once


@dataclass(frozen=True, eq=False)
class Chosen:
    """Tiles of one call, bool [batch, heads, q_blocks, kv_blocks]; under `causal` pairs of them with j <= i only.

    `keys` bool [batch, kv_len] and `pairs` bool [1 or batch, 1 or heads, q_len, kv_len] narrow them, True may
    be used; `docs` int64 [1 or batch, kv_len] is each position's document, in rising order, of which a query
    sees its own alone. None where there is nothing to say.
    """

    tiles: Tensor
    problem: Problem
    block: tuple[int, int]
    causal: bool
    keys: Tensor | None = None
    pairs: Tensor | None = None
    docs: Tensor | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing narrows the tiles."""
        return self.keys is None and self.pairs is None and self.docs is None

    def plan(self) -> tuple[Plan, bool]:
        """The plan, and whether its heads are those of all batch items in turn.

        Without masks it is made on the device and nothing waits; masks are read on the host.
        """
        if self.whole:
            size = {"q_len": self.problem.q_len, "kv_len": self.problem.kv_len, "block": self.block}
            return plan_from_mask(self.tiles, **size, causal=self.causal), False
        return plan(self.layout(), self.tiles.device), True

    def layout(self) -> BlockLayout:
        """The same as a layout of batch * heads heads. Waits for the device."""
        layout = BlockMask(self.tiles, self.problem, self.block, self.causal).layout()
        return layout if self.whole else _cut(layout, self)

    def allowed(self) -> Tensor:
        """The pairs, bool [batch, heads, q_len, kv_len]."""
        block_q, block_k = self.block
        q_len, kv_len = self.problem.q_len, self.problem.kv_len
        table = self.tiles.repeat_interleave(block_q, 2)[:, :, :q_len].repeat_interleave(block_k, 3)[..., :kv_len]
        if self.causal:
            row = torch.arange(q_len, device=table.device)[:, None] + self.problem.offset
            table = table & (torch.arange(kv_len, device=table.device) <= row)
        if self.keys is not None:
            table = table & self.keys[:, None, None]
        if self.docs is not None:
            own = self.docs[:, self.problem.offset : self.problem.offset + q_len]
            table = table & (own[:, None, :, None] == self.docs[:, None, None])
        return table if self.pairs is None else table & self.pairs


def _cut(layout: BlockLayout, chosen: Chosen) -> BlockLayout:
    """The layout's pairs that keys and pairs allow: a tile that they cut becomes BITS, one that they empty goes."""
    rows, q_blocks, (block_q, block_k) = layout.rows, layout.q_blocks, layout.block
    owner = np.repeat(np.arange(len(rows.start)), rows.length)
    line, kind, ref = rows.line[owner], rows.kind[owner].copy(), rows.ref[owner].astype(np.int64)
    column = rows.start[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(rows.length) - rows.length, rows.length)
    head, row = np.divmod(line, max(q_blocks, 1))
    item, head = np.divmod(head, chosen.tiles.shape[1])
    masks = _Masks(chosen, layout)

    some, whole = masks.tiles(item, head, row, column)
    kind[~some] = TileKind.EMPTY
    cut = np.flatnonzero(some & ~whole)
    packed = np.zeros((len(cut), layout.bits.shape[1]), np.uint8)
    step = max(SLAB // (block_q * block_k), 1)
    for first in range(0, len(cut), step):
        at = cut[first : first + step]
        pairs = masks.pairs(item[at], head[at], row[at], column[at])
        pairs = pairs.reshape(len(at), -1)
        packed[first : first + step] = np.packbits(pairs, axis=1, bitorder="little")
    kind[cut] = np.where(packed.any(1), TileKind.BITS, TileKind.EMPTY)
    bits, which = np.unique(packed, axis=0, return_inverse=True) if len(cut) else (packed, np.zeros(0, int))
    ref[cut] = which.reshape(-1)
    kept = np.flatnonzero(kind)
    runs = Runs.from_sorted(layout.groups * q_blocks, line[kept], column[kept], column[kept] + 1, kind[kept], ref[kept])
    return replace(layout, rows=runs, bits=bits)


class _Masks:
    """keys and pairs on the host, cut into tiles."""

    def __init__(self, chosen: Chosen, layout: BlockLayout) -> None:
        self.causal, self.block, self.offset = chosen.causal, layout.block, layout.problem.offset
        self.lengths = layout.problem.q_len, layout.problem.kv_len
        block_q, block_k = layout.block
        self.keys = self.table = None
        self.docs = None if chosen.docs is None else chosen.docs.cpu().numpy()
        if chosen.keys is not None:
            self.keys = _padded(chosen.keys.cpu().numpy(), (block_k,))  # [batch, kv_blocks, block_k]
        if chosen.pairs is not None:
            # [1 or batch, 1 or heads, q_blocks, block_q, kv_blocks, block_k]
            self.table = _padded(chosen.pairs.cpu().numpy(), (block_q, block_k))

    def tiles(self, item: NDArray, head: NDArray, row: NDArray, column: NDArray) -> tuple[NDArray, NDArray]:
        """Of each tile: whether some pairs may be left of it, and whether all that exist are."""
        some, whole = np.ones(len(item), bool), np.ones(len(item), bool)
        if self.keys is not None:
            count, width = self.keys.sum(-1)[item, column], self._extent(column, 1)
            some, whole = count > 0, count == width
        if self.table is not None:
            item, head = item % self.table.shape[0], head % self.table.shape[1]
            count = self.table.sum((3, 5))[item, head, row, column]
            some = some & (count > 0)
            whole = whole & (count == self._extent(row, 0) * self._extent(column, 1))
        if self.docs is not None:
            (first, last), (low, high) = self._documents(item, row, 0), self._documents(item, column, 1)
            some = some & (low <= last) & (high >= first)
            whole = whole & (first == high) & (low == last)
        return some, whole

    def pairs(self, item: NDArray, head: NDArray, row: NDArray, column: NDArray) -> NDArray[np.bool_]:
        """The pairs of tiles, bool [tiles, block_q, block_k], none beyond the lengths."""
        block_q, block_k = self.block
        i = row[:, None] * block_q + np.arange(block_q)
        j = column[:, None] * block_k + np.arange(block_k)
        out = (i < self.lengths[0])[:, :, None] & (j < self.lengths[1])[:, None]
        if self.causal:
            out &= j[:, None] <= i[:, :, None] + self.offset
        if self.keys is not None:
            out &= self.keys[item, column][:, None]
        if self.docs is not None:
            own, theirs = self._document(item, i + self.offset), self._document(item, j)
            out &= own[:, :, None] == theirs[:, None]
        if self.table is not None:
            out &= self.table[item % self.table.shape[0], head % self.table.shape[1], row, :, column]
        return out

    def _documents(self, item: NDArray, block: NDArray, side: int) -> tuple[NDArray, NDArray]:
        """The first and the last document of blocks of rows (side 0) or keys."""
        first = block * self.block[side] + (self.offset if side == 0 else 0)
        last = first + self._extent(block, side) - 1
        return self._document(item[:, None], first[:, None])[:, 0], self._document(item[:, None], last[:, None])[:, 0]

    def _document(self, item: NDArray, position: NDArray) -> NDArray:
        """Each position's document; positions beyond the last count as it, and are left out by who asks."""
        assert self.docs is not None  # asked for where there are some
        item = item.reshape(-1, 1) % len(self.docs)
        return self.docs[item, np.minimum(position, self.docs.shape[1] - 1)]

    def _extent(self, block: NDArray, side: int) -> NDArray:
        """Rows, or keys, of a block that exist."""
        return np.minimum(self.block[side], self.lengths[side] - block * self.block[side])


def _padded(table: NDArray[np.bool_], block: tuple[int, ...]) -> NDArray[np.bool_]:
    """The last dimensions of a table cut into blocks, False beyond its ends."""
    before = table.ndim - len(block)
    ends = [(0, -length % size) for length, size in zip(table.shape[before:], block, strict=True)]
    table = np.pad(table, [(0, 0)] * before + ends)
    shape = [n for length, size in zip(table.shape[before:], block, strict=True) for n in (length // size, size)]
    return table.reshape(*table.shape[:before], *shape)
