"""Named lossy lowerings: every partial tile becomes full or empty, and what that changed is counted.

`lower` is exact. Where a kernel or a format knows whole tiles only, one of these says by its name how
the partial tiles are settled: `cover` keeps them all, `strict` drops them all, `threshold` keeps the
full enough ones. Time and memory follow the runs and the tiles on band edges, never the pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import ragged
from ..errors import StudioError
from ..layout import BlockLayout, Runs, TileKind

Ints = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Lossy:
    """A layout of FULL tiles only, the exact layout it stands in for, and the difference.

    Per head, int64 [heads]: `added` pairs that the pattern does not allow, `dropped` pairs that it
    does, `emptied` query rows that had keys and have none now. `exact` and `layout` are what a
    measure on a capture needs: the attention mass lost is the one that `exact` keeps and `layout`
    does not. `layout.pattern_hash` is None, since it is no longer the pattern's layout.
    """

    name: str
    exact: BlockLayout
    layout: BlockLayout
    added: NDArray[np.int64]
    dropped: NDArray[np.int64]
    emptied: NDArray[np.int64]

    @property
    def pairs_added(self) -> int:
        """Pairs added, summed over heads."""
        return int(self.added.sum())

    @property
    def pairs_dropped(self) -> int:
        """Pairs dropped, summed over heads."""
        return int(self.dropped.sum())

    @property
    def rows_emptied(self) -> int:
        """Query rows that became empty, summed over heads."""
        return int(self.emptied.sum())

    def emptied_rows(self, head: int = 0) -> NDArray[np.int64]:
        """The query rows of one head that had keys and have none now, rising."""
        if not 0 <= head < len(self.emptied):
            raise StudioError(f"expected a head from 0 to {len(self.emptied) - 1}, got {head}; choose one of them")
        return np.flatnonzero(_emptied(self.exact, self.layout)[self.exact.head_group[head]])

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values that JSON can hold."""
        return {
            "lowering": self.name,
            "pairs": self.layout.pairs,
            "pairs_added": self.pairs_added,
            "pairs_dropped": self.pairs_dropped,
            "rows_emptied": self.rows_emptied,
            "tiles_full": self.layout.tiles(),
            "tiles_exact": self.exact.tiles(),
        }

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.pairs_added:,} pairs added, {self.pairs_dropped:,} dropped, "
            f"{self.rows_emptied:,} rows emptied; {self.layout.tiles():,} of {self.exact.tiles():,} active tiles kept"
        )


def cover(layout: BlockLayout) -> Lossy:
    """Every partial tile becomes full: nothing is lost, pairs that the pattern forbids are added.

    Causal patterns then see the future inside their diagonal tiles; `added` says how often.

    Source: the block layouts of DeepSpeed's sparse attention, which work this way without saying so.

    >>> import pattern_studio as ps
    >>> str(cover(ps.lower(ps.causal, q_len=32, block=16)))
    'cover: 240 pairs added, 0 dropped, 0 rows emptied; 3 of 3 active tiles kept'
    """
    return _settle("cover", layout, lambda share: share > 0)


def strict(layout: BlockLayout) -> Lossy:
    """Every partial tile is dropped: no pair is added, and rows can lose all of their keys.

    >>> import pattern_studio as ps
    >>> str(strict(ps.lower(ps.causal, q_len=32, block=16)))
    'strict: 0 pairs added, 272 dropped, 16 rows emptied; 1 of 3 active tiles kept'
    """
    return _settle("strict", layout, lambda share: share < 0)


def threshold(layout: BlockLayout, share: float) -> Lossy:
    """A partial tile becomes full where at least `share` of its pairs are allowed, else it is dropped.

    Pairs beyond q_len or kv_len do not count. `share` lies in [0, 1]: 0 is `cover`, and at 1 all
    partial tiles go, as in `strict`. Raises StudioError for another share.

    >>> import pattern_studio as ps
    >>> threshold(ps.lower(ps.causal, q_len=32, block=16), 0.6).pairs_dropped
    272
    """
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise StudioError(f"threshold takes the share of allowed pairs from 0 to 1, got {share!r}; such as 0.5")
    return _settle(f"threshold({share:g})", layout, lambda found: (found >= share) & (found > 0))


def _settle(name: str, layout: BlockLayout, keep: Callable[[NDArray[np.float64]], NDArray[np.bool_]]) -> Lossy:
    """Make the partial tiles full whose share of allowed pairs `keep` accepts, and drop the others."""
    line, start, stop, allowed, area = _partial_tiles(layout)
    # Equal quotients round alike, so that 7 of 100 pairs reach a share that is written 0.07.
    kept = keep(allowed / np.maximum(area, 1))
    tiles, group = stop - start, line // max(layout.q_blocks, 1)
    added, dropped = np.zeros((2, layout.groups), np.int64)
    np.add.at(added, group[kept], ((area - allowed) * tiles)[kept])
    np.add.at(dropped, group[~kept], (allowed * tiles)[~kept])
    rows, full = layout.rows, layout.rows.kind == TileKind.FULL
    first = rows.start[full].astype(np.int64)
    line = np.concatenate([rows.line[full], line[kept]])
    start = np.concatenate([first, start[kept]])
    stop = np.concatenate([first + rows.length[full], stop[kept]])
    order = np.lexsort((start, line))
    kinds, refs = np.full(len(line), TileKind.FULL), np.zeros(len(line), np.int64)
    settled = replace(
        layout,
        rows=Runs.from_sorted(layout.groups * layout.q_blocks, line[order], start[order], stop[order], kinds, refs),
        bands=layout.bands[:0],
        bits=layout.bits[:0],
        pattern_hash=None,
    )
    heads = layout.head_group
    emptied = _emptied(layout, settled).sum(1)
    return Lossy(name, layout, settled, added[heads], dropped[heads], emptied[heads])


def _emptied(exact: BlockLayout, settled: BlockLayout) -> NDArray[np.bool_]:
    """Rows that had keys and have none now, bool [groups, q_len]."""
    return (exact.group_row_counts > 0) & (settled.group_row_counts == 0)


def _partial_tiles(layout: BlockLayout) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Stretches of partial tiles with equal counts: line, first and stop tile, allowed pairs and pairs of each tile."""
    block_q, block_k = layout.block
    rows, kv_len = layout.rows, layout.problem.kv_len
    # Along a band every tile has a count of its own; along a run of one mask only a ragged last tile differs.
    band, bits = np.flatnonzero(rows.kind == TileKind.BAND), np.flatnonzero(rows.kind == TileKind.BITS)
    owner, rank = ragged(rows.length[band].astype(np.int64))
    run = band[owner]
    band_start = rows.start[run].astype(np.int64) + rank
    first = rows.start[bits].astype(np.int64)
    last = first + rows.length[bits]
    cut = np.clip(np.minimum(last, kv_len // block_k), first, last)
    start = np.concatenate([band_start, first, cut])
    stop = np.concatenate([band_start + 1, cut, last])
    run = np.concatenate([run, bits, bits])
    some = start < stop
    run, start, stop = run[some], start[some], stop[some]
    line = rows.line[run]
    low = line % max(layout.q_blocks, 1) * block_q
    height = np.minimum(block_q, layout.problem.q_len - low)
    left, right = start * block_k, np.minimum((start + 1) * block_k, kv_len)
    allowed = np.zeros(len(run), np.int64)
    is_band = rows.kind[run] == TileKind.BAND
    lo, hi = layout.bands[rows.ref[run[is_band]]].T
    top = (low + layout.problem.offset)[is_band]
    box = (top, top + height[is_band], left[is_band], right[is_band])
    allowed[is_band] = np.maximum(_pairs_up_to(hi, *box) - _pairs_up_to(lo - 1, *box), 0)
    allowed[~is_band] = layout.masks.sum((1, 2))[rows.ref[run[~is_band]]]
    return line, start, stop, allowed, height * (right - left)


def _pairs_up_to(bound: Ints, top: Ints, bottom: Ints, left: Ints, right: Ints) -> Ints:
    """Pairs with `j - i <= bound` of queries `top : bottom` and keys `left : right`."""
    bound = np.clip(bound, left - bottom, right - top)  # nothing changes beyond, and the squares stay in 64 bits

    def triangle(edge: Ints, row: Ints) -> Ints:
        n = np.maximum(row + bound - edge, 0)
        return n * (n + 1) // 2

    # Query i sees max(i + bound + 1 - left, 0) - max(i + bound + 1 - right, 0) keys: two sums of a staircase.
    return triangle(left, bottom) - triangle(left, top) - triangle(right, bottom) + triangle(right, top)
