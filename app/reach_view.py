"""What the Reach page looks at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReachView:
    """The page's choices; None is the page's own choice, which follows the pattern and the problem.

    - layers: how many are stacked; depth: after how many of them is looked.
    - block: tokens of a block, 1 for single tokens; query: the query row whose receptive field is drawn.
    """

    layers: int | None = None
    depth: int | None = None
    block: int | None = None
    query: int | None = None
