"""window: a diagonal band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, band
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Window(Leaf):
    """A query sees `left` keys before it, itself and `right` keys after it.

    Predicate: `-left <= j - i <= right`, both ends inclusive (the FlashAttention convention).
    Hugging Face's `sliding_window=W` is `causal & window(W - 1, 0)`.

    Source: Longformer (Beltagy et al. 2020), Mistral 7B (Jiang et al. 2023).

    >>> Window(3, 0).allows(5, 2), Window(3, 0).allows(5, 1)
    (np.True_, np.False_)
    """

    left: int
    right: int
    name: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        self.check("left", 0)
        self.check("right", 0)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        distance = np.subtract(j, i)
        return (distance >= -self.left) & (distance <= self.right)

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        return band(strips, -self.left, self.right)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        return [np.clip(key - row, -self.left - shape[1], self.right + shape[0])]

    def transposed(self) -> Pattern:
        return Window(self.right, self.left)


PATTERN = Window
