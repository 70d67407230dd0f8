"""heads: a pattern for each head."""

from __future__ import annotations

from typing import ClassVar

from ..assignment import Assignment


class Heads(Assignment):
    """Different patterns for different heads.

    `heads({range(0, 8): p, range(8, 32): q})`, or `heads({0:8: p, 8:32: q})` in text. Every head of
    the problem must have a pattern.

    >>> import pattern_studio as ps
    >>> str(ps.heads({0: ps.dense, range(1, 4): ps.causal}))
    'heads({0: dense, range(1, 4): causal})'
    """

    name: ClassVar[str] = "heads"
    unit: ClassVar[str] = "head"

    def resolve(self, head=0, layer=None):
        return self.chosen(head).resolve(head, layer)


PATTERN = Heads
