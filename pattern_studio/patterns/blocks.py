"""blocks: an explicit block layout."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, covered, ragged
from ..errors import StudioError
from ..expr import Pattern
from ..leaf import Leaf
from ..problem import block_shape
from ..spans import positions, spans


@dataclass(frozen=True)
class Blocks(Leaf):
    """A layout drawn block by block: `rows[I]` lists the key blocks that query block `I` sees.

    Predicate: `j // block_k in rows[i // block_q]`; queries beyond the listed rows see nothing.
    `block` is `(block_q, block_k)` tokens; each row is a tuple of block indices and ranges.

    Source: DeepSpeed's and Triton's block-sparse layouts.

    >>> str(Blocks.from_mask([[1, 0], [1, 1]], block=64))
    'blocks((64, 64), ((0,), (range(0, 2),)))'
    """

    block: tuple[int, int]
    rows: tuple[tuple[int | range, ...], ...]
    name: ClassVar[str] = "blocks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "block", block_shape(self.block))
        if not isinstance(self.rows, (tuple, list)):
            raise StudioError(
                f"blocks' rows must be a tuple with a tuple of key blocks per query block, got {self.rows!r}"
            )
        object.__setattr__(self, "rows", tuple(positions(f"blocks' row {n}", row) for n, row in enumerate(self.rows)))

    @classmethod
    def from_mask(cls, mask: object, block: int | tuple[int, int]) -> Blocks:
        """From a block mask, bool [q_blocks, kv_blocks]."""
        table = np.asarray(mask)
        if table.ndim != 2:
            raise StudioError(f"a block mask has two dimensions (q_blocks, kv_blocks), got shape {table.shape}")
        return cls(block_shape(block), tuple(tuple(np.flatnonzero(row).tolist()) for row in table))

    @cached_property
    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """indptr [rows + 1] and block intervals [n, 2]."""
        each = [spans(row) for row in self.rows]
        indptr = np.cumsum([0, *map(len, each)])
        return indptr, np.concatenate([*each, np.zeros((0, 2), np.int64)])

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        indptr, span = self._spans
        row, key = np.broadcast_arrays(np.floor_divide(i, self.block[0]), np.floor_divide(j, self.block[1]))
        listed = (row >= 0) & (row < len(self.rows))
        if not len(span):
            return np.zeros(row.shape, bool)
        # One axis for (row, key block) finds the interval that could hold the pair.
        width = max(int(span.max()), int(key.max(initial=0)), 0) + 2
        owner = np.repeat(np.arange(len(self.rows)), np.diff(indptr))
        at = np.searchsorted(owner * width + span[:, 0], row * width + np.maximum(key, -1), "right") - 1
        near = np.maximum(at, 0)
        return listed & (at >= 0) & (owner[near] == row) & (key >= 0) & (key < span[near, 1])

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        indptr, span = self._spans
        block_q, block_k = self.block
        low = np.clip(strips.first // block_q, 0, len(self.rows))
        high = np.clip(strips.last // block_q + 1, 0, len(self.rows))
        piece, rank = ragged(np.maximum(high - low, 0))
        row = low[piece] + rank
        rows = np.minimum(strips.last[piece] + 1, (row + 1) * block_q) - np.maximum(strips.first[piece], row * block_q)
        owner, rank = ragged(indptr[row + 1] - indptr[row])
        chosen = span[indptr[row[owner]] + rank] * block_k
        return covered(strips, piece[owner], chosen[:, 0], chosen[:, 1], rows[owner])

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [row, key]

    def transposed(self) -> Pattern:
        indptr, span = self._spans
        owner, rank = ragged(span[:, 1] - span[:, 0])
        key = span[owner, 0] + rank
        row = np.repeat(np.arange(len(self.rows)), np.diff(indptr))[owner]
        order = np.lexsort((row, key))
        cut = np.searchsorted(key[order], np.arange(int(key.max(initial=-1)) + 2))
        rows = tuple(tuple(row[order][a:b].tolist()) for a, b in itertools.pairwise(cut))
        return Blocks((self.block[1], self.block[0]), rows)


PATTERN = Blocks
