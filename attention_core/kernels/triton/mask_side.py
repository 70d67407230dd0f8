"""MaskSide: sizes of the lists of a block mask. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class MaskSide:
    """Sizes of the lists that a block mask gives in one direction, all known on the host.

    Lines of `own` positions, `own_len` in all, own lists of the `others` tiles of `other` positions, `length` in
    all. Causal pairs have j - i <= `offset`, counted in rows. The work table has room for `extra` parts beyond
    the lines, the masked lists for `room` units a line.
    """

    groups: int
    lines: int
    others: int
    own: int
    other: int
    own_len: int
    length: int
    offset: int
    causal: bool
    transposed: bool
    extra: int

    @cached_property
    def granule(self) -> int:
        """Neighbouring positions of a unit: the largest power of two that divides a tile's side, at most 128."""
        return min(self.other & -self.other, 128)

    @cached_property
    def tile(self) -> int:
        """Positions of a tile of the lists."""
        return max(64, self.granule)

    @cached_property
    def per_tile(self) -> int:
        """Units of a tile of the lists."""
        return self.tile // self.granule

    @cached_property
    def units(self) -> int:
        """Units that a line can have."""
        return self.others * (self.other // self.granule)

    @cached_property
    def room(self) -> int:
        """Masked units of a line: left over from full tiles, the ragged end, and those that a diagonal cuts."""
        most = self.per_tile + ((self.own + self.granule) // self.granule + 1 if self.causal else 0)
        return -(-min(most, self.units) // self.per_tile) * self.per_tile

    @cached_property
    def numbers(self) -> list[int]:
        """What TileLists keep on the host."""
        block = (self.other, self.own) if self.transposed else (self.own, self.other)
        return [self.own, self.lines, self.granule, self.tile, *block, 2 * self.extra, 0]
