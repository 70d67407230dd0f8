"""neighborhood: the nearest cells on a token grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from reprlib import repr
from typing import ClassVar

import numpy as np

from ..errors import StudioError
from ..gridleaf import GridLeaf, Product
from ..reach import Reach


@dataclass(frozen=True)
class Neighborhood(GridLeaf):
    """A query sees the `kernel` nearest cells along every dimension; at borders the window moves in, so none is lost.

    Predicate, along each dimension of size L and joined by and, with `d = dilation`, `k = kernel`,
    `s = stride`: `i % d == j % d`, and with `x = i // d`, `y = j // d` and `n` the number of
    coordinates congruent to `i`: `start <= y < start + k`, where
    `start = clip(min(x // s * s + s // 2, n - 1) - k // 2, 0, n - k)`: all queries of a group of
    `s` share the window of their middle one. Along a causal dimension instead
    `min(x // s * s + s - 1, n - 1) - k < y <= x`, which is cut off at 0, not moved.

    An even kernel reaches one cell further to the left than to the right. `kernel`, `stride`,
    `dilation` and `causal` take one value per dimension, or one for all; `kernel * dilation` must
    not exceed the dimension, nor `stride` the kernel.

    Source: Neighborhood Attention (Hassani et al. 2023), with dilation (Hassani and Shi 2022) and
    stride (Generalized Neighborhood Attention, Hassani et al. 2025); the rules are NATTEN's.

    >>> from pattern_studio.grid import Grid
    >>> near = Neighborhood(Grid(h=4, w=6), kernel=(3, 3))
    >>> [j for j in range(24) if near.allows(0, j)]
    [0, 1, 2, 6, 7, 8, 12, 13, 14]
    """

    kernel: tuple[int, ...] = field(kw_only=True)
    stride: tuple[int, ...] = field(default=(), kw_only=True)
    dilation: tuple[int, ...] = field(default=(), kw_only=True)
    causal: tuple[bool, ...] = field(default=(), kw_only=True)
    name: ClassVar[str] = "neighborhood"

    def __post_init__(self) -> None:
        self.needs_grid()
        object.__setattr__(self, "kernel", self.grid.per_dim("neighborhood's kernel", self.kernel, 1))
        for option in ("stride", "dilation"):
            given = getattr(self, option)
            values = self.grid.per_dim(f"neighborhood's {option}", 1 if given == () else given, 1)
            object.__setattr__(self, option, () if set(values) == {1} else values)
        object.__setattr__(self, "causal", self._checked_causal())
        for size, kernel, stride, dilation, _ in self._dims():
            if kernel * dilation > size:
                raise StudioError(
                    f"neighborhood's kernel x dilation must fit the dimension: {kernel} x {dilation} cells of {size}; "
                    "use a smaller kernel or dilation, or a larger grid"
                )
            if stride > kernel:
                raise StudioError(f"neighborhood's stride must not exceed its kernel {kernel}, got {stride}")

    def _checked_causal(self) -> tuple[bool, ...]:
        dims = len(self.grid.sizes)
        values = self.causal if isinstance(self.causal, (tuple, list)) else (self.causal,) * dims
        if len(values) not in (0, dims) or not all(isinstance(value, bool) for value in values):
            raise StudioError(f"neighborhood's causal takes True or False per dimension, got {repr(self.causal)}")
        return tuple(values) if any(values) else ()

    def _dims(self) -> list[tuple[int, int, int, int, bool]]:
        sizes = self.grid.sizes
        ones = (1,) * len(sizes)
        causal = self.causal or (False,) * len(sizes)
        return list(zip(sizes, self.kernel, self.stride or ones, self.dilation or ones, causal, strict=True))

    def products(self) -> tuple[Product, ...]:
        along = tuple(_reach(*dim) for dim in self._dims())
        return (self.padded(along, _reach(1, 1, 1, 1, False)),)


def _reach(size: int, kernel: int, stride: int, dilation: int, causal: bool) -> Reach:
    query = np.arange(size)
    x, offset = np.divmod(query, dilation)
    last = (size - 1 - offset) // dilation
    if causal:
        low = np.maximum(np.minimum(x // stride * stride + stride - 1, last) - kernel + 1, 0)
        high = x
    else:
        leader = np.minimum(x // stride * stride + stride // 2, last)
        low = np.clip(leader - kernel // 2, 0, last + 1 - kernel)
        high = low + kernel - 1
    return Reach(low * dilation + offset, high * dilation + offset, dilation)


PATTERN = Neighborhood
