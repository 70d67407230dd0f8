"""GridLeaf: the base of primitives on token grids, unions of one relation per dimension each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, reduce
from reprlib import repr

import numpy as np
from numpy.typing import NDArray

from .boxes import boxes_of
from .columns import Columns, Ints, Scope, Strips, sweep
from .distinct import distinct_rows
from .errors import StudioError
from .grid import Grid
from .kleene import either
from .leaf import Leaf
from .product import Product, product_columns


@dataclass(frozen=True)
class GridLeaf(Leaf):
    """A query sees a key where, for one of `products`, it does so along t, h and w alike.

    Queries and keys outside the grid see nothing and are seen by none.
    """

    grid: Grid

    @abstractmethod
    def products(self) -> tuple[Product, ...]:
        """The relations along t, h and w, a dimension of size 1 where it was left out."""

    @cached_property
    def _products(self) -> tuple[Product, ...]:
        return self.products()

    @cached_property
    def _inverses(self) -> tuple[Product, ...]:
        return tuple((t.inverse, h.inverse, w.inverse) for t, h, w in self._products)

    def needs_grid(self) -> None:
        """Raise unless the first argument is a grid."""
        if not isinstance(self.grid, Grid):
            raise StudioError(f"{self.name} takes a grid first, such as grid(h=32, w=32); got {repr(self.grid)}")

    def padded(self, values: tuple, fill: object) -> tuple:
        """Values per given dimension as values for t, h and w."""
        return (fill,) * (3 - len(values)) + values

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        valid = self.grid.inside(i) & self.grid.inside(j)
        query = self.grid.coordinates(np.where(self.grid.inside(i), i, 0))
        key = self.grid.coordinates(np.where(self.grid.inside(j), j, 0))
        found = np.zeros(valid.shape, bool)
        for product in self._products:
            seen = valid
            for reach, q, k in zip(product, query, key, strict=True):
                if len(reach.low) > 1:
                    seen = seen & reach.holds(q, k)
            found |= seen
        return found

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return self._columns(self._products, strips)

    def transposed_columns(self, strips: Strips, scope: Scope) -> Columns:
        return self._columns(self._inverses, strips)

    def _columns(self, products: tuple[Product, ...], strips: Strips) -> Columns:
        boxes = boxes_of(self.grid, strips.first, strips.last)
        found = [product_columns(self.grid, product, boxes, strips) for product in products]
        return found[0] if len(found) == 1 else sweep(strips, found, lambda *values: reduce(either, values))

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        q_shape, q_low, q_high = self._stretch(row, shape[0])
        k_shape, k_low, k_high = self._stretch(key, shape[1])
        outside = (q_low[0] < 0) | (k_low[0] < 0)
        parts, mixed = [], np.zeros(len(row), bool)
        for product in self._products:
            codes = [r.codes(*ends) for r, *ends in zip(product, q_low, q_high, k_low, k_high, strict=True)]
            kinds = np.stack([kind for kind, _, _ in codes])
            none = outside | (kinds == 0).any(0)
            mixed |= ~none & (kinds > 1).any(0)
            parts += [np.where(none, 0, part) for code in codes for part in code]
        # How the cells lie in their boxes matters only where a box is seen in part, or is cut by the grid's end.
        whole = ~mixed & (q_shape >= 0) & (k_shape >= 0)
        return [*parts, np.where(whole, -1, np.abs(q_shape)), np.where(whole, -1, np.abs(k_shape))]

    def _stretch(self, first: Ints, size: int) -> tuple[Ints, Ints, Ints]:
        """For each stretch of positions: how its cells lie in the box around them, and that box.

        Shapes are numbered, negative where positions lie outside the grid; a box without cells is at -1.
        """
        first, which = np.unique(first, return_inverse=True)
        position = first[:, None] + np.arange(size)
        inside = self.grid.inside(position)
        cell = self.grid.coordinates(np.where(inside, position, 0))
        far = self.grid.cells
        low = np.where(inside, cell, far).min(2)
        high = np.where(inside, cell, -1).max(2)
        low = np.where(inside.any(1), low, -1)
        form = np.ascontiguousarray(np.where(inside, cell - low[:, :, None], -1).swapaxes(0, 1), np.int32)
        shape = distinct_rows(form.reshape(len(first), -1).view(np.uint8))[1] + 1
        shape = np.where(inside.all(1), shape, -shape)
        return shape[which], low[:, which], high[:, which]
