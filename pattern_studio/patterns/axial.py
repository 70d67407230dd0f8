"""axial: lines of a token grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..errors import StudioError
from ..gridleaf import GridLeaf, Product
from ..problem import whole
from ..reach import Reach


@dataclass(frozen=True)
class Axial(GridLeaf):
    """A query sees the cells that share a line with it: all its coordinates but one are equal.

    Predicate: `i` and `j` differ in at most one coordinate, and that is one of `axes` (0 is the
    first dimension of the grid); without `axes`, any one.

    Source: Axial attention (Ho et al. 2019); both axes at once, CCNet (Huang et al. 2019).

    >>> from pattern_studio.grid import Grid
    >>> [j for j in range(12) if Axial(Grid(h=3, w=4)).allows(5, j)]
    [1, 4, 5, 6, 7, 9]
    """

    axes: tuple[int, ...] | None = field(default=None, kw_only=True)
    name: ClassVar[str] = "axial"

    def __post_init__(self) -> None:
        self.needs_grid()
        if self.axes is None:
            return
        dims = len(self.grid.sizes)
        given = self.axes if isinstance(self.axes, (tuple, list)) else (self.axes,)
        axes = tuple(sorted({whole("an axis of axial", axis, 0, dims - 1) for axis in given}))
        if not axes:
            raise StudioError("axial needs an axis, such as axes=(0,); leave axes out for all of them")
        object.__setattr__(self, "axes", None if len(axes) == dims else axes)

    def products(self) -> tuple[Product, ...]:
        sizes = self.grid.sizes
        axes = range(len(sizes)) if self.axes is None else self.axes
        return tuple(
            self.padded(tuple(_reach(size, dim == axis) for dim, size in enumerate(sizes)), _reach(1, True))
            for axis in axes
        )


def _reach(size: int, free: bool) -> Reach:
    query = np.arange(size)
    return Reach(np.zeros_like(query), np.full_like(query, size - 1)) if free else Reach(query, query)


PATTERN = Axial
