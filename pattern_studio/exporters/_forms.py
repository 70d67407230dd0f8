"""What a pattern is for one problem, whatever its text: a window, with or without sinks. Every pair is compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..expr import Pattern
from ..lowering import lower
from ..patterns.causal import Causal
from ..patterns.dilated import Dilated
from ..patterns.sink import Sink
from ..patterns.window import Window
from ._frame import Request


@dataclass(frozen=True)
class Local:
    """`left` taps before the query, itself, `right` taps after it, `rate` apart; and the first `sinks` keys."""

    left: int
    right: int
    rate: int = 1
    sinks: int = 0

    def pattern(self) -> Pattern:
        """The pattern that this describes."""
        taps = Dilated(self.left, self.right, rate=self.rate) if self.rate > 1 else Window(self.left, self.right)
        return Causal() & (taps | Sink(self.sinks)) if self.sinks else taps


def local(request: Request, head: int = 0) -> Local | None:
    """The Local that one head's pattern is for the request's problem, or None. Absolute positions, any offset.

    The last row gives the reach to the left, the first one that to the right; then all pairs are compared.
    """
    problem = request.problem
    alone = request.pattern.resolve(head, request.layer)
    layout = lower(alone, problem, block=request.block)
    top = layout.expand(0, 0, 1)[0]
    bottom = layout.expand(0, problem.q_len - 1, problem.q_len)[0]
    first, last = problem.offset, problem.offset + problem.q_len - 1
    after, before = np.flatnonzero(top) - first, last - np.flatnonzero(bottom)
    after, before = after[after >= 0], np.sort(before[before >= 0])
    if not (len(before) and before[0] == 0):  # a row that does not see itself is no window
        return None
    steps = np.diff(before)
    candidates = []
    gap = np.flatnonzero(steps > 1)
    if len(gap) == 1 and last - before[-1] == 0:  # two stretches, the further one from the first key on
        candidates.append(Local(int(before[gap[0]]), 0, 1, len(before) - int(gap[0]) - 1))
    rate = int(steps[0]) if len(steps) else int(np.diff(after)[0]) if len(after) > 1 else 1
    candidates.append(Local(int(before[-1]) // rate, int(after.max(initial=0)) // rate, rate))
    for candidate in candidates:
        other = alone ^ candidate.pattern()
        if not lower(other, problem, block=request.block).pairs:
            return candidate
    return None
