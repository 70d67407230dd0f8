"""Layouts made from layouts: what lies inside the causal triangle, and one head alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..expr import And, Pattern
from ..layout import BlockLayout, Runs
from ..lowering import lower
from ..patterns import PRIMITIVES

CAUSAL = PRIMITIVES["causal"]


def lower_causal_part(pattern: Pattern, layout: BlockLayout, layer: int | None = None) -> BlockLayout:
    """The layout of `causal & pattern`: the given layout itself where every head is causal by construction.

    >>> from pattern_studio import parse
    >>> pattern = parse("causal & window(3, 3)")
    >>> layout = lower(pattern, q_len=100)
    >>> lower_causal_part(pattern, layout) is layout
    True
    """
    resolved = {pattern.resolve(head, layer) for head in range(layout.problem.heads)}
    if all(p == CAUSAL or (isinstance(p, And) and CAUSAL in p.children) for p in resolved):
        return layout
    return lower(CAUSAL & pattern, layout.problem, block=layout.block, layer=layer)


def single_head(layout: BlockLayout, head: int) -> BlockLayout:
    """One head as a layout of its own, sharing the arrays.

    >>> from pattern_studio import causal, dense, heads
    >>> single_head(lower(heads({0: dense, 1: causal}), q_len=4, heads=2, block=2), head=1).pairs
    10
    """
    line = int(layout.head_group[head]) * layout.q_blocks
    indptr = layout.rows.indptr[line : line + layout.q_blocks + 1]
    span = slice(indptr[0], indptr[-1])
    rows = layout.rows
    part = Runs(indptr - indptr[0], rows.start[span], rows.length[span], rows.kind[span], rows.ref[span])
    return replace(layout, problem=replace(layout.problem, heads=1), head_group=np.zeros(1, np.int32), rows=part)
