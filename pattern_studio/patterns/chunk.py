"""chunk: attention inside chunks of one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Chunk(Leaf):
    """A query sees the keys of its own chunk of `size` positions.

    Predicate: `i // size == j // size`.

    Source: Llama 4's chunked attention; Hugging Face's `attention_chunk_size`.

    >>> [j for j in range(12) if Chunk(4).allows(6, j)]
    [4, 5, 6, 7]
    """

    size: int
    name: ClassVar[str] = "chunk"

    def __post_init__(self) -> None:
        self.check("size", 1)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        return np.floor_divide(i, self.size) == np.floor_divide(j, self.size)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        low, high = strips.first // self.size, strips.last // self.size
        strip, rank = ragged(high - low + 1)
        start = (low[strip] + rank) * self.size
        rows = np.minimum(strips.last[strip] + 1, start + self.size) - np.maximum(strips.first[strip], start)
        return covered(strips, strip, start, start + self.size, rows)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        chunks = key // self.size - row // self.size  # far apart, the exact distance does not matter
        reach = max(shape) // self.size + 2
        return [row % self.size, key % self.size, np.clip(chunks, -reach, reach)]

    def transposed(self) -> Pattern:
        return self


PATTERN = Chunk
