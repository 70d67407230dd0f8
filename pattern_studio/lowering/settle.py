"""Tiles that column runs leave undecided, settled exactly: evaluated once for each distinct signature.

A mask comes from the predicate, pair by pair, or, where that takes less, from the key runs of the
tile's rows, one by one: a single row has no undecided columns.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, ragged, sort
from ..distinct import distinct_rows
from ..errors import StudioError
from ..expr import Pattern
from ..layout import TileKind
from ..order import order_of

MAX_MASK_BYTES = 2**31  # of the table of unique bit masks
CHUNK_PAIRS = 2**22  # pairs evaluated at a time
CHUNK_RUNS = 2**17  # key runs of single rows looked at a time: few enough for the processor's cache
RUN_COST = 16  # pairs that are evaluated in the time that one key run takes

# Tiles (line, start), their kind and their row in a table of packed masks.
Settled = tuple[Ints, Ints, NDArray[np.uint8], Ints, NDArray[np.uint8]]


def settle(pattern: Pattern, scope: Scope, runs: Columns, strips: Strips, block: tuple[int, int]) -> Settled:
    """Decide tiles, given as runs in tiles: EMPTY ones are dropped, the others FULL or BITS."""
    block_q, block_k = block
    runs = sort(runs)
    owner, rank = ragged(runs.stop - runs.start)
    line, tile = runs.strip[owner], runs.start[owner] + rank
    if not len(line):
        none = np.zeros(0, np.int64)
        return none, none, none.astype(np.uint8), none, np.zeros((0, -(-block_q * block_k // 8)), np.uint8)
    corner = tile * block_k
    # Ragged ends are part of what a mask depends on.
    height, width = strips.height[line], np.minimum(block_k, strips.key_stop[line] - corner)
    which, example = _classes([*pattern.signature(strips.first[line], corner, block, scope), height, width])
    bytes_each = -(-block_q * block_k // 8)
    if len(example) * bytes_each > MAX_MASK_BYTES:
        raise StudioError(
            f"{pattern} needs {len(example):,} different bit masks of {bytes_each:,} bytes at block {block}, more "
            f"than the {MAX_MASK_BYTES / 2**30:.0f} GiB that are kept; use a smaller block, such as ({block_q}, 1)"
        )
    tiles = _Tiles(pattern, scope, strips, block, line[example], corner[example])
    packed = tiles.by_row() if tiles.rows_are_cheap() else tiles.by_pair()
    count = np.bitwise_count(packed).sum(1, dtype=np.int64)
    full = count == height[example] * width[example]
    one, mask_of = distinct_rows(packed)
    kind = np.where(count == 0, TileKind.EMPTY, np.where(full, TileKind.FULL, TileKind.BITS)).astype(np.uint8)[which]
    keep = kind != TileKind.EMPTY
    mask = np.where(full, 0, mask_of)[which]
    return line[keep], tile[keep], kind[keep], mask[keep], packed[one]


def _classes(signature: list[Ints]) -> tuple[Ints, Ints]:
    """Class of each tile, and the first tile of each class, in order; equal signature, equal class."""
    code, size = np.zeros(len(signature[0]), np.int64), 1
    for part in signature:
        low, high = int(part.min()), int(part.max())
        if size > 2**62 // (high - low + 1):  # keep the joint code in 64 bits
            code = np.unique(code, return_inverse=True)[1]
            part, low, high = (found := np.unique(part, return_inverse=True)[1]), 0, int(found.max())
            size = int(code.max()) + 1
        code = code * (high - low + 1) + (part - low)
        size *= high - low + 1
    if (code[1:] > code[:-1]).all():  # no two alike
        return np.arange(len(code)), np.arange(len(code))
    if size > 4 * len(code):
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        return number[which], first[order]
    # A small code is a place in a table: no sort.
    first = np.full(size, -1)
    first[code[::-1]] = np.arange(len(code))[::-1]
    example = np.sort(first[first >= 0])
    number = np.empty_like(first)
    number[code[example]] = np.arange(len(example))
    return number[code], example


class _Tiles:
    """Distinct tiles to be evaluated, in order of (line, corner)."""

    def __init__(
        self, pattern: Pattern, scope: Scope, strips: Strips, block: tuple[int, int], line: Ints, corner: Ints
    ) -> None:
        self.pattern, self.scope, self.strips, self.block = pattern, scope, strips, block
        self.line, self.corner = line, corner
        # The lines that have tiles, where their tiles begin, and the keys that they look at.
        self.begin = np.flatnonzero(np.r_[True, line[1:] != line[:-1]])
        self.end = np.r_[self.begin[1:], len(line)]
        self.lines = line[self.begin]
        self.key_first = corner[self.begin]
        self.key_stop = np.minimum(corner[self.end - 1] + block[1], strips.key_stop[self.lines])

    def rows_are_cheap(self) -> bool:
        """Whether all rows have fewer key runs than their tiles have pairs, judged by a few rows."""
        pairs = len(self.line) * self.block[0] * self.block[1]
        sample = np.unique(np.linspace(0, len(self.lines) - 1, 8).astype(int))
        height = self.strips.height[self.lines[sample]]
        row = self.strips.first[self.lines[sample]] + np.arange(len(sample)) * height // len(sample)
        runs = self.pattern.columns(Strips(row, row, self.key_first[sample], self.key_stop[sample]), self.scope)
        self.runs_per_line = len(runs) / len(sample) * self.block[0] + 1
        return self.runs_per_line * len(self.lines) * RUN_COST < pairs

    def by_pair(self) -> NDArray[np.uint8]:
        """Packed masks from the predicate."""
        block_q, block_k = self.block
        packed = np.empty((len(self.line), -(-block_q * block_k // 8)), np.uint8)
        step = max(1, CHUNK_PAIRS // (block_q * block_k))
        for begin in range(0, len(packed), step):
            part = slice(begin, begin + step)
            i = self.strips.first[self.line[part]][:, None, None] + np.arange(block_q)[:, None]
            j = self.corner[part][:, None, None] + np.arange(block_k)
            mask = self.pattern.allows(i, j, self.scope)
            mask &= (i <= self.strips.last[self.line[part]][:, None, None]) & (
                j < self.strips.key_stop[self.line[part]][:, None, None]
            )
            packed[part] = np.packbits(mask.reshape(len(mask), -1), axis=1, bitorder="little")
        return packed

    def by_row(self) -> NDArray[np.uint8]:
        """Packed masks from the key runs of each row."""
        packed = np.zeros((len(self.line), -(-self.block[0] * self.block[1] // 8)), np.uint8)
        step = max(1, int(CHUNK_RUNS / self.runs_per_line))
        for begin in range(0, len(self.lines), step):
            lines = slice(begin, begin + step)
            first, stop = self.begin[lines][0], self.end[lines][-1]
            self._fill(packed[first:stop], first, stop, *self._stretches(lines))
        return packed

    def _stretches(self, lines: slice) -> tuple[Ints, Ints, Ints, Ints]:
        """Allowed stretches of some lines' tiles: tile, row in it, first column, column to stop at."""
        block_k = self.block[1]
        chosen = self.lines[lines]
        of, rank = ragged(self.strips.height[chosen])
        row = self.strips.first[chosen][of] + rank
        rows = Strips(row, row, self.key_first[lines][of], self.key_stop[lines][of])
        runs = self.pattern.columns(rows, self.scope)
        # One axis for (line, key) finds the tiles that each run meets.
        width = int(self.key_stop.max()) + block_k
        at = np.searchsorted(chosen, self.line[self.begin[lines][0] : self.end[lines][-1]]) * width
        at += self.corner[self.begin[lines][0] : self.end[lines][-1]]
        base = of[runs.strip] * width
        low = np.searchsorted(at + block_k, base + runs.start, "right")
        corner = np.append(at, np.iinfo(np.int64).max)[low]
        high = low + (corner < base + runs.stop)
        longer = np.flatnonzero(corner + block_k < base + runs.stop)
        high[longer] = np.searchsorted(at, (base + runs.stop)[longer], "left")
        owner, step = ragged(high - low)
        tile = low[owner] + step
        corner = at[tile] - base[owner]
        start = np.maximum(runs.start[owner] - corner, 0)
        stop = np.minimum(runs.stop[owner] - corner, block_k)
        return tile, rank[runs.strip[owner]], start, stop

    def _fill(
        self, packed: NDArray[np.uint8], first: int, last: int, tile: Ints, row: Ints, start: Ints, stop: Ints
    ) -> None:
        """Set the bits of the stretches in the masks of tiles `first:last`."""
        block_q, block_k = self.block
        area = block_q * block_k
        pairs = stop - start
        if int(pairs.sum()) * 8 < (last - first) * area:  # few bits: one by one
            owner, rank = ragged(pairs)
            bit = row[owner] * block_k + start[owner] + rank
            value = np.left_shift(1, bit % 8).astype(np.uint8)
            np.add.at(packed.reshape(-1), tile[owner] * packed.shape[1] + bit // 8, value)
            return
        order = order_of(tile)
        tile, opens, closes = tile[order], (row * block_k + start)[order], (row * block_k + stop)[order]
        step = max(1, CHUNK_PAIRS // area)
        cuts = np.searchsorted(tile, np.arange(0, last - first + step, step))
        for n, (low, high) in enumerate(itertools.pairwise(cuts)):
            count = min(step, last - first - n * step)
            change = np.zeros(count * area + 1, np.int8)
            base = (tile[low:high] - n * step) * area
            change[base + opens[low:high]] = 1
            change[base + closes[low:high]] -= 1  # a row's end can be where the next row begins
            mask = np.cumsum(change[:-1], dtype=np.int8).reshape(count, area)
            packed[n * step : n * step + count] = np.packbits(mask, axis=1, bitorder="little")
