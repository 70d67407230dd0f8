"""Stages: one rank's part of a layout, as a layout over the keys that it holds while it runs them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pattern_studio.layout import BlockLayout, Runs, TileKind
from pattern_studio.problem import Problem

from .needs import Needs

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stage:
    """A layout of local query rows over a buffer of keys, and which key tiles stand in that buffer.

    `held` says for each kind of KV head which global key tiles the buffer holds, bool [kinds,
    kv_blocks]. They stand in ascending order, one after another from the buffer's start; only the
    ragged last tile of the sequence stands at the buffer's end, where the layout's own ragged end is.
    """

    layout: BlockLayout
    held: NDArray[np.bool_]

    def places(self, kind: int) -> tuple[Ints, Ints]:
        """The global tiles of one kind and the buffer's tile that each stands in, int64 [tiles] both."""
        tiles = np.flatnonzero(self.held[kind])
        places = np.arange(len(tiles))
        if self.held[kind, -1:].any() and _ragged(self.layout.problem.kv_len, self.layout.block[1]):
            places[-1] = self.layout.kv_blocks - 1
        return tiles, places


def stage(needs: Needs, rank: int, held: NDArray[np.bool_]) -> Stage:
    """The part of a rank's rows that lies in the held key tiles, bool [kinds, kv_blocks]."""
    layout, block_k = needs.layout, needs.layout.block[1]
    blocks = needs.query_blocks(rank)
    ragged_tile = layout.kv_blocks - 1 if _ragged(layout.problem.kv_len, block_k) else None
    ends = bool(ragged_tile is not None and held[:, ragged_tile].any())
    whole = int((held.sum(1) - (held[:, ragged_tile] if ends else 0)).max(initial=0))
    kv_len = whole * block_k + (layout.problem.kv_len % block_k if ends else 0)

    # One local group for each group of the layout that each kind of KV head reads.
    wanted = [(kind, group) for kind, groups in enumerate(needs.kinds) for group in groups]
    parts = [_moved(needs, rank, group, held[kind], ragged_tile if ends else None, whole) for kind, group in wanted]
    line = np.concatenate([part[0] + n * len(blocks) for n, part in enumerate(parts)])
    start, stop, code, low, high = (np.concatenate([part[n] for part in parts]) for n in range(1, 6))
    band = code[:, 0] == TileKind.BAND
    bands, ref = np.unique(np.stack([low[band], high[band]], 1), axis=0, return_inverse=True)
    code[band, 1] = ref.ravel()

    heads = layout.problem.heads
    share = max(heads // len(needs.kind_of), 1)
    groups = [
        wanted.index((int(needs.kind_of[head // share if heads > 1 else 0]), int(layout.head_group[head])))
        for head in range(heads)
    ]
    # Groups are numbered in the order in which heads name them: every one is named by some head.
    rows = Runs.from_sorted(len(wanted) * len(blocks), line, start, stop, code[:, 0], code[:, 1])
    problem = Problem(int(needs.queries.lengths[rank]), kv_len, 0, heads)
    local = BlockLayout(problem, layout.block, np.array(groups, np.int32), rows, bands.reshape(-1, 2), layout.bits)
    return Stage(local, held)


def _moved(needs: Needs, rank: int, group: int, held: NDArray[np.bool_], ragged: int | None, whole: int):
    """The runs of one group on a rank: local line, start, stop, (kind, ref), and low and high of bands."""
    layout, (block_q, block_k) = needs.layout, needs.layout.block
    rows, lines = layout.rows, needs.lines(rank, group)
    counts = np.diff(rows.indptr)[lines]
    local = np.repeat(np.arange(len(lines)), counts)
    begin = np.repeat(rows.indptr[lines], counts)
    index = begin + np.arange(len(begin)) - np.repeat(np.cumsum(counts) - counts, counts)
    kind, ref = rows.kind[index], rows.ref[index]
    first = rows.start[index].astype(np.int64)
    stop = first + rows.length[index]

    # `before[t]` held tiles lie before tile t: a run of one content stays one run, whatever was left out of it.
    before = np.r_[0, np.cumsum(held)]
    # A band moves with its tiles, so a banded run is cut where tiles were left out.
    edges = np.flatnonzero(held[1:] != held[:-1]) + 1
    cuts = np.where(kind == TileKind.BAND, np.searchsorted(edges, stop) - np.searchsorted(edges, first, "right"), 0)
    piece = np.repeat(np.arange(len(first)), cuts + 1)
    nth = np.arange(len(piece)) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    padded = np.r_[edges, 0]
    at = np.searchsorted(edges, first, "right")[piece] + nth
    left = np.where(nth == 0, first[piece], padded[np.clip(at - 1, 0, len(edges))])
    right = np.where(nth == cuts[piece], stop[piece], padded[np.clip(at, 0, len(edges))])
    if ragged is not None:  # it stands at the buffer's end, apart from the run that it may close
        split = (left < ragged) & (right > ragged)
        piece = np.r_[piece, piece[split]]
        left, right = np.r_[left, np.full(split.sum(), ragged)], np.r_[np.where(split, ragged, right), right[split]]

    start, end = before[left], before[right]
    if ragged is not None:
        last = left == ragged
        start, end = np.where(last & held[ragged], whole, start), np.where(last & held[ragged], whole + 1, end)
    keep = end > start
    piece, left, start, end = piece[keep], left[keep], start[keep], end[keep]
    order = np.lexsort((start, local[piece]))
    piece, left, start, end = piece[order], left[order], start[order], end[order]
    line, code = local[piece], np.stack([kind[piece].astype(np.int64), ref[piece].astype(np.int64)], 1)
    moved = layout.problem.offset + (needs.query_blocks(rank)[line] - line) * block_q - (left - start) * block_k
    band = code[:, 0] == TileKind.BAND
    low, high = np.zeros((2, len(line)), np.int64)
    low[band], high[band] = (layout.bands[code[band, 1]] + moved[band, None]).T
    return line, start, end, code, low, high


def _ragged(length: int, block: int) -> bool:
    return length % block != 0
