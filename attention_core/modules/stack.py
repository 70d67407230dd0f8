"""Many layouts as one: batch items with layouts of their own become heads of a single problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout, Runs, TileKind

MAX_HEADS = 65536  # heads of one problem


def stacked(layouts: Sequence[BlockLayout], order: Sequence[int]) -> BlockLayout:
    """A layout of `len(order) * heads` heads; those of item n follow `layouts[order[n]]`.

    The layouts have one problem (documents apart) and one block. With q [batch, heads, ...] seen as
    [1, batch * heads, ...], and k and v likewise, query head h of an item still reads its own key head.

    >>> import pattern_studio as ps
    >>> causal, dense = (ps.lower(ps.parse(text), q_len=8, block=4) for text in ("causal", "dense"))
    >>> stacked([causal, dense], [0, 1, 1]).pairs == causal.pairs + 2 * dense.pairs
    True
    """
    first = layouts[0]
    heads = first.problem.heads * len(order)
    if heads > MAX_HEADS:
        raise StudioError(
            f"{len(order)} batch items that differ in padding, documents or mask, with {first.problem.heads} heads, "
            f"make {heads:,} heads of one problem; at most {MAX_HEADS:,} are kept: split the batch"
        )
    groups = np.cumsum([0, *(layout.groups for layout in layouts)])
    bands = np.cumsum([0, *(len(layout.bands) for layout in layouts)])
    bits = np.cumsum([0, *(len(layout.bits) for layout in layouts)])
    runs = np.cumsum([0, *(len(layout.rows.start) for layout in layouts)])
    refs = []
    for n, layout in enumerate(layouts):
        base = np.where(
            layout.rows.kind == TileKind.BAND, bands[n], np.where(layout.rows.kind == TileKind.BITS, bits[n], 0)
        )
        refs.append((layout.rows.ref + base).astype(np.int32))
    rows = Runs(
        np.concatenate([[0], *(layout.rows.indptr[1:] + runs[n] for n, layout in enumerate(layouts))]).astype(np.int64),
        np.concatenate([layout.rows.start for layout in layouts]),
        np.concatenate([layout.rows.length for layout in layouts]),
        np.concatenate([layout.rows.kind for layout in layouts]),
        np.concatenate(refs),
    )
    head_group = np.concatenate([layouts[n].head_group + groups[n] for n in order]).astype(np.int32)
    return BlockLayout(
        replace(first.problem, heads=heads, docs=None),
        first.block,
        head_group,
        rows,
        np.concatenate([layout.bands for layout in layouts]),
        np.concatenate([layout.bits for layout in layouts]),
    )
