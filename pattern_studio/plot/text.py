"""A layout in the terminal, drawn with block characters."""

from __future__ import annotations

import numpy as np

from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout
from ..lowering import lower
from ..problem import whole
from .density import density_map
from .ticks import label

EMPTY, SHADES, FULL = " ", "░▒▓", "█"


def draw(
    pattern: Pattern | BlockLayout, size: int = 64, *, head: int = 0, q_len: int = 256, block: int | tuple[int, int] = 1
) -> str:
    """A picture of at most `size` characters across and half as many down, with token ranges and a legend.

    `q_len` and `block` are what a Pattern is lowered for; a layout has its own. `█` is a cell whose pairs
    are all allowed, `░▒▓` some of them (up to a third, two thirds, more), a blank none.

    Raises:
        StudioError: `size` below 2, or neither a pattern nor a layout.

    Example:
        >>> import pattern_studio as ps
        >>> print(draw(ps.parse("causal & (window(3, 0) | sink(1))"), size=16, q_len=16))
           keys 0 to 15
         0 █▒
         2 ███▒
         4 █▒███▒
         6 █  ▒███▒
         8 █    ▒███▒
        10 █      ▒███▒
        12 █        ▒███▒
        14 █          ▒███▒
           one character = 2 x 1 tokens; █ all pairs allowed, ░▒▓ some, blank none
    """
    whole("the size of a drawing", size, 2, 1024)
    if isinstance(pattern, Pattern):
        pattern = lower(pattern, q_len=q_len, block=block, heads=head + 1)
    if not isinstance(pattern, BlockLayout):
        raise StudioError(
            f"expected a Pattern or a BlockLayout to draw, got {type(pattern).__name__}; parse text first"
        )
    cells = density_map(pattern, head, max_cells=(max(1, size // 2), size))
    rows, keys = cells.grid.rows, cells.grid.keys
    share = cells.mean
    codes = np.where(share == 1, 4, np.where(share > 0, np.minimum((share * 3).astype(int) + 1, 3), 0))
    letters = np.array([EMPTY, *SHADES, FULL])[codes]
    margin = len(label(pattern.problem.q_len))
    lines = [f"{'':{margin}} keys 0 to {keys.stop - 1:,}"]
    for start, row in zip(rows.edges[:-1].tolist(), letters, strict=True):
        lines.append(f"{label(start):>{margin}} {''.join(row)}".rstrip())
    lines.append(
        f"{'':{margin}} one character = {rows.size:,} x {keys.size:,} tokens; "
        f"{FULL} all pairs allowed, {SHADES} some, blank none"
    )
    return "\n".join(lines)
