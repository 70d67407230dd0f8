"""Cells: a mask of tokens, or of square tiles, with its positions; looked at a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import Scope
from ..expr import Pattern

STEP = 2**24  # cells looked at together,
TALL = 2048  # and rows: shearing them takes the square of their number
Ints = NDArray[Any]
Bools = NDArray[np.bool_]
Inside = Callable[[Ints, Ints], Bools]  # whether cells (i, j) count


@dataclass(frozen=True)
class Cells:
    """A mask, bool [rows, keys]; row `r` stands at position `first + r`; a cell is `unit x unit` tokens.

    Positions count cells: the cell (i, j) holds the tokens from `i * unit` and `j * unit` on.
    """

    mask: Bools
    first: int
    unit: int
    scope: Scope

    def strips(self) -> Iterator[tuple[slice, Ints, Ints]]:
        """Stretches of rows, with their positions [rows, 1] and the keys' positions [1, keys]."""
        rows, keys = self.mask.shape
        j = np.arange(keys)[None, :]
        step = max(1, min(STEP // max(keys, 1), TALL))
        for low in range(0, rows, step):
            part = slice(low, min(low + step, rows))
            yield part, np.arange(part.start, part.stop)[:, None] + self.first, j

    def of(self, pattern: Pattern) -> Inside:
        """What a pattern says of the first token of each cell."""
        return lambda i, j: pattern.allows(i * self.unit, j * self.unit, self.scope)

    def shows(self, pattern: Pattern) -> bool:
        """Whether the pattern has the mask's value at the first token of every cell."""
        says = self.of(pattern)
        return all(np.array_equal(says(i, j), self.mask[part]) for part, i, j in self.strips())

    def within(self, inside: Inside) -> bool:
        """Whether all allowed cells count."""
        return not any((self.mask[part] & ~inside(i, j)).any() for part, i, j in self.strips())

    def lines(self, inside: Inside) -> tuple[Bools, Bools]:
        """Rows and keys whose counting cells are all allowed: bool [rows], bool [keys]."""
        rows = np.zeros(self.mask.shape[0], bool)
        bad, any_ = np.zeros((2, self.mask.shape[1]), bool)
        for part, i, j in self.strips():
            counts = np.broadcast_to(inside(i, j), self.mask[part].shape)
            holes = counts & ~self.mask[part]
            rows[part] = counts.any(1) & ~holes.any(1)
            bad |= holes.any(0)
            any_ |= counts.any(0)
        return rows, any_ & ~bad

    def diagonals(self, counts: Inside) -> tuple[Ints, Ints]:
        """The differences `j - i` on which a counting cell is allowed, and those on which one is not; sorted."""
        rows, keys = self.mask.shape
        yes, no = np.zeros((2, rows + keys), bool)  # index: j - r + rows - 1 for row r
        for part, i, j in self.strips():
            counted = np.broadcast_to(counts(i, j), self.mask[part].shape)
            at = rows - part.stop
            for found, cells in ((yes, counted & self.mask[part]), (no, counted & ~self.mask[part])):
                found[at : at + keys + len(cells) - 1] |= _skewed(cells)
        low = -(self.first + rows - 1)
        return np.flatnonzero(yes) + low, np.flatnonzero(no) + low

    def borders(self, counts: Inside) -> Ints:
        """Positions p in 1 .. keys - 1 that no counted pair crosses: none with one end before p and one from p on."""
        keys = self.mask.shape[1]
        change = np.zeros(keys + 1, np.int64)
        for part, i, j in self.strips():
            cells = self.mask[part] & counts(i, j)
            some = np.flatnonzero(cells.any(1))
            at = i[some, 0]
            low = np.clip(np.minimum(cells[some].argmax(1), at) + 1, 0, keys)
            high = np.clip(np.maximum(keys - cells[some, ::-1].argmax(1), at + 1), 0, keys)
            np.add.at(change, low, 1)
            np.add.at(change, high, -1)
        return np.flatnonzero(np.cumsum(change[:keys])[1:] == 0) + 1


def _skewed(cells: Bools) -> Bools:
    """Whether each diagonal of cells holds a true one, from the lower left to the upper right."""
    height, width = cells.shape
    padded = np.zeros((height, width + height), bool)
    padded[:, :width] = cells[::-1]
    # Read with rows one shorter, each row moves one to the right of the one above it.
    sheared = padded.ravel()[: height * (width + height - 1)].reshape(height, -1)
    return np.logical_or.reduce(sheared, axis=0)
