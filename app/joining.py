"""One layer of attention on packed bits: the rows of a relation that each query block's keys name, joined."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pattern_studio import BlockLayout

AT_ONCE = 2**21  # words of a temporary, 16 MiB

Bits = NDArray[np.uint64]  # [rows, ceil(columns / 64)], the first column in the lowest bit


def identity(size: int) -> Bits:
    """Each row related to itself.

    >>> identity(3).tolist()
    [[1], [2], [4]]
    """
    bits, at = np.zeros((size, -(-size // 64)), np.uint64), np.arange(size)
    bits[at, at // 64] = np.uint64(1) << (at % 64).astype(np.uint64)
    return bits


def unpacked(bits: Bits, columns: int) -> NDArray[np.bool_]:
    """The bits one by one, bool [rows, columns].

    >>> unpacked(identity(2), 2).tolist()
    [[True, False], [False, True]]
    """
    octets = bits.astype("<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, count=columns, bitorder="little").view(bool)


def tokens_in(bits: Bits, block: int, tokens: int) -> NDArray[np.int64]:
    """Tokens in the blocks of each row, int64 [rows], the last block being as long as what is left of `tokens`.

    >>> tokens_in(identity(3), block=4, tokens=9).tolist()
    [4, 4, 1]
    """
    last = -(-tokens // block) - 1
    ends = (bits[:, last // 64] >> np.uint64(last % 64)) & np.uint64(1)
    return np.bitwise_count(bits).sum(1, dtype=np.int64) * block - ends.astype(np.int64) * ((last + 1) * block - tokens)


class Links:
    """Which key blocks each query block reads in a layer, by any head, ready to be joined again and again.

    A stretch of blocks `a : b` is the join of two stretches of a power of two of blocks, one from a, one up to b,
    and the joins of all such stretches follow from those of half the length.
    """

    def __init__(self, layout: BlockLayout) -> None:
        rows = layout.rows
        line, start, stop = _merged(rows.line % layout.q_blocks, rows.start.astype(np.int64), rows.length)
        level = np.frexp(stop - start)[1] - 1
        # For each power of two: the stretches' lines, where they begin, and where the last of their parts begins.
        self.levels = [
            (line[at], start[at], stop[at] - 2**power)
            for power in range(int(level.max(initial=-1)) + 1)
            for at in [np.flatnonzero(level == power)]
        ]

    def joined(self, field: Bits) -> Bits:
        """Row I of the result: row I of `field`, and the rows of all key blocks that I reads."""
        out, stretch = field.copy(), field.copy()  # row r of `stretch` joins rows r : r + 2 ** power
        for power, (line, first, last) in enumerate(self.levels):
            for part in np.array_split(np.arange(len(line)), len(line) * field.shape[1] // AT_ONCE + 1):
                if len(part):
                    begins = np.flatnonzero(np.r_[True, np.diff(line[part]) > 0])
                    both = stretch[first[part]] | stretch[last[part]]
                    out[line[part][begins]] |= np.bitwise_or.reduceat(both, begins)
            stretch[: -(2**power)] |= stretch[2**power :].copy()
        return out


def _merged(line: NDArray, start: NDArray, length: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Lines, starts and stops of the runs of all heads, those that touch or overlap made one."""
    order = np.lexsort((start, line))
    line, start, stop = line[order], start[order], (start + length)[order]
    if not len(line):
        return line, start, stop
    apart = int(stop.max()) + 1  # so far that runs of different lines never touch
    begin, end = line * apart + start, np.maximum.accumulate(line * apart + stop)
    opens = np.flatnonzero(np.r_[True, begin[1:] > end[:-1]])
    closes = np.r_[opens[1:], len(begin)] - 1
    line = line[opens]
    return line, begin[opens] - line * apart, end[closes] - line * apart
