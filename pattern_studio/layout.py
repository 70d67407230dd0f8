"""BlockLayout: a lowered pattern. Per query block a sorted list of key runs, FULL, BAND or BITS.

A *tile* is one (query block, key block) pair. A *run* is a row of neighbouring tiles of one kind
with one `ref`:

- FULL: every pair of the tile that exists (ragged ends included) is allowed; `ref` is 0.
- BAND: allowed where `lo <= j - i <= hi` on absolute positions; `ref` indexes `bands`. A band does
  not depend on the tile, so a window's edges are one run a row however long it is.
- BITS: `ref` indexes `bits`, a table of unique packed masks; every tile of the run has that mask.

Tiles that no run names are EMPTY. Heads with the same pattern share one group of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .errors import StudioError
from .order import order_of
from .problem import Problem, block_shape

UNBOUNDED = 2**40  # |lo| or |hi| of a band that has no such edge; far beyond any j - i
SHORT = 4  # tiles of a run, on average, up to which transposing goes tile by tile
MAX_EXPANDED = 2**31  # cells of the largest dense mask that expand() will build


class TileKind(IntEnum):
    """What a tile holds. BAND and BITS are the two kinds of PARTIAL tile; all but EMPTY are active."""

    EMPTY = 0
    FULL = 1
    BAND = 2
    BITS = 3


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of tiles in CSR form: line `n` owns runs `indptr[n] : indptr[n + 1]`, sorted by `start`.

    Shapes: indptr int64 [lines + 1]; start, length, ref int32 [runs]; kind uint8 [runs]. Starts and
    lengths count tiles. Lines are query blocks (over key blocks), or, transposed, the reverse.
    """

    indptr: NDArray[np.int64]
    start: NDArray[np.int32]
    length: NDArray[np.int32]
    kind: NDArray[np.uint8]
    ref: NDArray[np.int32]

    @cached_property
    def line(self) -> NDArray[np.int64]:
        """The line that each run belongs to, int64 [runs]."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @classmethod
    def from_sorted(cls, lines: int, line: NDArray, start: NDArray, stop: NDArray, kind: NDArray, ref: NDArray) -> Runs:
        """Build from runs sorted by (line, start), joining neighbours of one kind and ref."""
        if len(line):
            same = (line[1:] == line[:-1]) & (start[1:] == stop[:-1]) & (kind[1:] == kind[:-1]) & (ref[1:] == ref[:-1])
            heads = np.flatnonzero(np.r_[True, ~same])
            tails = np.r_[heads[1:] - 1, len(line) - 1]
            line, start, stop, kind, ref = line[heads], start[heads], stop[tails], kind[heads], ref[heads]
        indptr = np.searchsorted(line, np.arange(lines + 1)).astype(np.int64)
        return cls(
            indptr,
            start.astype(np.int32),
            (stop - start).astype(np.int32),
            kind.astype(np.uint8),
            ref.astype(np.int32),
        )


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """A pattern lowered for one problem and block size, exactly.

    `rows` has `groups * q_blocks` lines over key blocks: line `g * q_blocks + I` is query block `I`
    of group `g`, and head `h` follows group `head_group[h]`. `bands` is int64 [bands, 2] of
    inclusive `(lo, hi)` on `j - i`; `bits` is uint8 [masks, ceil(block_q * block_k / 8)], row-major
    over (query, key) of the tile, little-endian bits, pairs beyond q_len or kv_len unset.
    """

    problem: Problem
    block: tuple[int, int]
    head_group: NDArray[np.int32]
    rows: Runs
    bands: NDArray[np.int64]
    bits: NDArray[np.uint8]
    pattern_hash: str | None = field(default=None)

    @property
    def q_blocks(self) -> int:
        """Number of query blocks, the last one possibly ragged."""
        return -(-self.problem.q_len // self.block[0])

    @property
    def kv_blocks(self) -> int:
        """Number of key blocks, the last one possibly ragged."""
        return -(-self.problem.kv_len // self.block[1])

    @property
    def groups(self) -> int:
        """Number of distinct head layouts."""
        return int(self.head_group.max(initial=-1)) + 1

    @cached_property
    def columns(self) -> Runs:
        """The transpose: `groups * kv_blocks` lines over query blocks, same kinds and refs."""
        return _transpose(self.rows, self.groups, self.q_blocks, self.kv_blocks)

    @cached_property
    def masks(self) -> NDArray[np.bool_]:
        """The bit masks unpacked, bool [masks, block_q, block_k]."""
        block_q, block_k = self.block
        flat = np.unpackbits(self.bits, axis=1, count=block_q * block_k, bitorder="little")
        return flat.reshape(-1, block_q, block_k).astype(bool)

    def tiles(self, kind: TileKind | None = None) -> int:
        """Number of active tiles over all heads, or of those of one kind."""
        per_group = np.zeros(self.groups, np.int64)
        chosen = self.rows.kind == kind if kind is not None else slice(None)
        np.add.at(per_group, self.rows.line[chosen] // max(self.q_blocks, 1), self.rows.length[chosen])
        return int(per_group[self.head_group].sum())

    @cached_property
    def group_row_counts(self) -> NDArray[np.int64]:
        """Allowed keys of each query row, int64 [groups, q_len]."""
        block_q, block_k = self.block
        q_len, kv_len = self.problem.q_len, self.problem.kv_len
        rows, table = self.rows, np.zeros((self.groups * self.q_blocks, block_q), np.int64)
        first = rows.start.astype(np.int64) * block_k
        stop = np.minimum(first + rows.length.astype(np.int64) * block_k, kv_len)
        full = rows.kind == TileKind.FULL
        np.add.at(table, rows.line[full], (stop - first)[full, None])
        band = np.flatnonzero(rows.kind == TileKind.BAND)
        for part in np.array_split(band, len(band) // 65536 + 1):  # bounds the [runs, block_q] temporaries
            position = (rows.line[part] % max(self.q_blocks, 1))[:, None] * block_q + np.arange(block_q)
            position += self.problem.offset
            lo, hi = self.bands[rows.ref[part], 0, None], self.bands[rows.ref[part], 1, None]
            left = np.maximum(position + lo, first[part, None])
            right = np.minimum(position + hi + 1, stop[part, None])
            np.add.at(table, rows.line[part], np.maximum(right - left, 0))
        bits = np.flatnonzero(rows.kind == TileKind.BITS)
        if len(bits):
            per_mask = self.masks.sum(2)
            for part in np.array_split(bits, len(bits) // 65536 + 1):
                counts = per_mask[rows.ref[part]] * rows.length[part].astype(np.int64)[:, None]
                np.add.at(table, rows.line[part], counts)
        return table.reshape(self.groups, -1)[:, :q_len]

    @cached_property
    def pairs(self) -> int:
        """Allowed (query, key) pairs, summed over heads."""
        return int(self.group_row_counts.sum(1)[self.head_group].sum())

    @cached_property
    def tile_pairs(self) -> int:
        """Pairs inside active tiles (ragged ends cut), summed over heads: what a block kernel computes."""
        block_q, block_k = self.block
        height = np.minimum(block_q, self.problem.q_len - self.rows.line % max(self.q_blocks, 1) * block_q)
        first = self.rows.start.astype(np.int64) * block_k
        width = np.minimum(self.rows.length.astype(np.int64) * block_k, self.problem.kv_len - first)
        per_group = np.zeros(self.groups, np.int64)
        np.add.at(per_group, self.rows.line // max(self.q_blocks, 1), height * width)
        return int(per_group[self.head_group].sum())

    @cached_property
    def empty_rows(self) -> int:
        """Query rows without an allowed key, summed over heads."""
        return int((self.group_row_counts == 0).sum(1)[self.head_group].sum())

    def tile_kinds(self, head: int = 0) -> NDArray[np.uint8]:
        """TileKind of every tile of one head, uint8 [q_blocks, kv_blocks]."""
        affordable(self.q_blocks * self.kv_blocks, "tile map")
        out = np.zeros((self.q_blocks, self.kv_blocks), np.uint8)
        for row, first, stop, kind, _ in self._runs_of(head):
            out[row, first:stop] = kind
        return out

    def expand(self, head: int = 0, first_row: int = 0, last_row: int | None = None) -> NDArray[np.bool_]:
        """Token mask of one head for query rows `first_row : last_row`, bool [rows, kv_len]."""
        block_q, block_k = self.block
        last_row = self.problem.q_len if last_row is None else last_row
        if not 0 <= first_row <= last_row <= self.problem.q_len:
            raise StudioError(
                f"rows {first_row} to {last_row} of {self.problem.q_len} were asked for; stay within them"
            )
        low, high = first_row // block_q, -(-last_row // block_q)
        affordable((high - low) * block_q * self.kv_blocks * block_k, "token mask")
        out = np.zeros(((high - low) * block_q, self.kv_blocks * block_k), bool)
        rows = np.arange(low * block_q, high * block_q)[:, None] + self.problem.offset
        for row, first, stop, kind, ref in self._runs_of(head, low, high):
            lines = slice((row - low) * block_q, (row - low + 1) * block_q)
            keys = slice(first * block_k, stop * block_k)
            if kind == TileKind.FULL:
                out[lines, keys] = True
            elif kind == TileKind.BAND:
                distance = np.arange(keys.start, keys.stop) - rows[lines]
                out[lines, keys] = (distance >= self.bands[ref, 0]) & (distance <= self.bands[ref, 1])
            else:
                out[lines, keys] = np.tile(self.masks[ref], stop - first)
        return out[first_row - low * block_q : last_row - low * block_q, : self.problem.kv_len]

    def _runs_of(self, head: int, low: int = 0, high: int | None = None):
        """Yield (query block, first tile, stop tile, kind, ref) of one head, query blocks low : high."""
        if not 0 <= head < self.problem.heads:
            raise StudioError(f"head must lie between 0 and {self.problem.heads - 1}, got {head}")
        base = int(self.head_group[head]) * self.q_blocks
        span = slice(self.rows.indptr[base + low], self.rows.indptr[base + (self.q_blocks if high is None else high)])
        line, start = (self.rows.line[span] - base).tolist(), self.rows.start[span].tolist()
        length, kind, ref = (a[span].tolist() for a in (self.rows.length, self.rows.kind, self.rows.ref))
        return ((i, s, s + n, k, r) for i, s, n, k, r in zip(line, start, length, kind, ref, strict=True))

    def validate(self) -> BlockLayout:
        """Return self if every array is sound, else raise; files and imports go through here."""
        _validate(self)
        return self

    def __eq__(self, other: object) -> bool:
        """Equal problem, block and contents, whatever the order of the mask and band tables."""
        if not isinstance(other, BlockLayout):
            return NotImplemented
        if (self.problem, self.block) != (other.problem, other.block):
            return False
        return all(self._head_content(h) == other._head_content(h) for h in self._distinct_heads(other))

    __hash__ = None  # type: ignore[assignment]  # mutable arrays inside: use pattern_hash as a key

    def _distinct_heads(self, other: BlockLayout) -> list[int]:
        pairs = np.stack([self.head_group, other.head_group])
        return np.unique(pairs, axis=1, return_index=True)[1].tolist()

    def _head_content(self, head: int) -> list[tuple]:
        def content(kind: int, ref: int) -> object:
            if kind == TileKind.BAND:
                return tuple(self.bands[ref].tolist())
            return self.bits[ref].tobytes() if kind == TileKind.BITS else None

        return [(i, first, stop, kind, content(kind, ref)) for i, first, stop, kind, ref in self._runs_of(head)]


def affordable(cells: int, what: str) -> None:
    """Raise before a dense array of so many cells would be allocated."""
    if cells > MAX_EXPANDED:
        raise StudioError(
            f"a dense {what} of {cells:,} cells was asked for, at most {MAX_EXPANDED:,} are built; "
            "expand fewer rows at a time or use a larger block"
        )


def _transpose(rows: Runs, groups: int, q_blocks: int, kv_blocks: int) -> Runs:
    """Runs over query blocks for each key block, in time proportional to what it returns.

    Between one query block and the next only the stretches whose content changes matter: they
    open and close vertical runs. Opening and closing events of a key block then alternate.
    """
    if int(rows.length.sum()) <= SHORT * len(rows.length):
        return _transpose_short(rows, groups, q_blocks, kv_blocks)
    # One line more per group than query blocks: its empty line closes what the last one left open.
    line = rows.line + rows.line // max(q_blocks, 1)
    width = kv_blocks + 1
    code = (rows.kind.astype(np.int64) << 32) | rows.ref
    opens = line * width + rows.start
    closes = opens + rows.length
    # Each stretch of line n is an "old" stretch for line n + 1.
    cuts = np.unique(np.concatenate([opens, closes, opens + width, closes + width]))
    if len(cuts) < 2:
        empty = np.zeros(0, np.int64)
        return Runs.from_sorted(groups * kv_blocks, empty, empty, empty, empty, empty)
    cut = cuts[:-1]

    def content_at(begin: NDArray, end: NDArray) -> NDArray[np.int64]:
        at = np.searchsorted(begin, cut, "right") - 1
        inside = (at >= 0) & (cut < end[np.maximum(at, 0)])
        return np.where(inside, code[np.maximum(at, 0)], 0)

    new, old = content_at(opens, closes), content_at(opens + width, closes + width)
    changed = new != old
    cut, span, new, old = cut[changed], np.diff(cuts)[changed], new[changed], old[changed]
    line, first = cut // width, cut % width
    group, query = line // (q_blocks + 1), line % (q_blocks + 1)
    which = np.repeat(np.arange(len(cut)), span)
    offset = np.arange(len(which)) - np.repeat(np.cumsum(span) - span, span)
    column = group[which] * kv_blocks + first[which] + offset

    def events(chosen: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        keep = chosen[which] != 0
        order = np.lexsort((query[which][keep], column[keep]))
        return column[keep][order], query[which][keep][order], chosen[which][keep][order]

    column_open, query_open, code_open = events(new)
    _, query_close, _ = events(old)
    return Runs.from_sorted(
        groups * kv_blocks, column_open, query_open, query_close, code_open >> 32, code_open & 0xFFFFFFFF
    )


def _transpose_short(rows: Runs, groups: int, q_blocks: int, kv_blocks: int) -> Runs:
    """The same where runs are short: tile by tile, with one sort."""
    owner = np.repeat(np.arange(len(rows.start)), rows.length)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(rows.length) - rows.length, rows.length)
    group, query = np.divmod(rows.line[owner], max(q_blocks, 1))
    column = group * kv_blocks + rows.start[owner] + offset
    order = order_of(column * max(q_blocks, 1) + query)
    owner, column, query = owner[order], column[order], query[order]
    return Runs.from_sorted(groups * kv_blocks, column, query, query + 1, rows.kind[owner], rows.ref[owner])


def _validate(layout: BlockLayout) -> None:
    block_q, block_k = block_shape(layout.block)
    rows, lines = layout.rows, layout.groups * layout.q_blocks

    def need(good: bool, expected: str, got: object) -> None:
        if not good:
            raise StudioError(f"not a sound layout: expected {expected}, got {got}; lower the pattern again")

    need(len(layout.head_group) == layout.problem.heads, f"{layout.problem.heads} head groups", len(layout.head_group))
    need(bool((layout.head_group >= 0).all()), "head groups of at least 0", layout.head_group.min(initial=0))
    need(len(rows.indptr) == lines + 1, f"indptr of {lines + 1} entries", len(rows.indptr))
    sizes = {len(a) for a in (rows.start, rows.length, rows.kind, rows.ref)}
    need(len(sizes) == 1, "start, length, kind and ref of one size", sorted(sizes))
    ordered = rows.indptr[0] == 0 and bool((np.diff(rows.indptr) >= 0).all()) and rows.indptr[-1] == len(rows.start)
    need(ordered, f"indptr rising from 0 to {len(rows.start)}", f"{rows.indptr[0]} to {rows.indptr[-1]}")
    need(bool((rows.length > 0).all()), "run lengths of at least 1", rows.length.min(initial=1))
    stop = rows.start.astype(np.int64) + rows.length
    inside = bool((rows.start >= 0).all()) and bool((stop <= layout.kv_blocks).all())
    need(inside, f"runs inside {layout.kv_blocks} key blocks", f"one that ends at {stop.max(initial=0)}")
    follows = (rows.line[1:] != rows.line[:-1]) | (rows.start[1:] >= stop[:-1])
    need(bool(follows.all()), "runs of a query block in order and apart", "overlapping runs")
    need(layout.bands.shape[1:] == (2,), "bands of shape [n, 2]", layout.bands.shape)
    need(layout.bits.shape[1:] == (-(-block_q * block_k // 8),), "masks of block_q * block_k bits", layout.bits.shape)
    sizes_of = {TileKind.FULL: 1, TileKind.BAND: len(layout.bands), TileKind.BITS: len(layout.bits)}
    need(set(np.unique(rows.kind).tolist()) <= set(sizes_of), "kinds 1, 2 or 3", np.unique(rows.kind).tolist())
    for kind, size in sizes_of.items():
        ref = rows.ref[rows.kind == kind]
        need(bool(((ref >= 0) & (ref < size)).all()), f"{kind.name} refs below {size}", ref.max(initial=0))
