"""radial: spatial windows of video frames that shrink with the distance in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Scope, Strips, band, ragged, united
from ..expr import Pattern
from ..leaf import Leaf


@dataclass(frozen=True)
class Radial(Leaf):
    """Frames of `frame` tokens: the further away in time, the smaller the stretch of a frame that is seen.

    Predicate: with the frames `f = i // frame` and `g = j // frame`, their distance `d = |f - g|`,
    `p = 2 ** floor(log2(max(d, 1)))` and the places `k = i % frame` and `l = j % frame`:
    `|k - l| + 1 <= frame / p`, or `k == l` where `d` is divisible by `ceil(p / frame)`. So a frame and
    its neighbours are seen whole, half a frame at distances 2 and 3, a quarter from 4 to 7.

    The paper adds the first frame as a sink, `radial(n) | sink(n)`; its code rounds to blocks and
    differs in the near frames from model to model.

    Source: Radial Attention for video generation (Li et al. 2025), section 4.2.

    >>> [sum(bool(Radial(8).allows(3, 8 * frame + k)) for k in range(8)) for frame in range(6)]
    [8, 8, 7, 7, 3, 3]
    """

    frame: int
    name: ClassVar[str] = "radial"

    def __post_init__(self) -> None:
        self.check("frame", 1)

    def allows(self, i: Ints, j: Ints, scope: Scope = Scope()) -> NDArray[np.bool_]:
        (f, k), (g, m) = np.divmod(i, self.frame), np.divmod(j, self.frame)
        return np.abs(np.subtract(m, k)) <= self._half_width(np.abs(np.subtract(g, f)))

    def _half_width(self, distance: Ints) -> Ints:
        """Largest |k - l| that is allowed between frames at this distance; -1 where none is."""
        power = np.int64(1) << (np.frexp(np.maximum(distance, 1).astype(float))[1] - 1).astype(np.int64)
        width = self.frame // power - 1
        return np.where(width >= 0, width, np.where(distance % -(-power // self.frame) == 0, 0, -1))

    def columns(self, strips: Strips, scope: Scope) -> Columns:
        # Cut strips at frames; one frame sees in each other frame a stretch around its own place, which is a band.
        low, high = strips.first // self.frame, strips.last // self.frame
        piece, rank = ragged(high - low + 1)
        frame = low[piece] + rank
        first = np.maximum(strips.first[piece], frame * self.frame)
        last = np.minimum(strips.last[piece], (frame + 1) * self.frame - 1)
        seen = strips.key_first[piece] // self.frame
        owner, rank = ragged(np.maximum((strips.key_stop[piece] - 1) // self.frame - seen + 1, 0))
        other = seen[owner] + rank
        width = self._half_width(np.abs(other - frame[owner]))
        some = width >= 0
        owner, other, width = owner[some], other[some], width[some]
        away = (other - frame[owner]) * self.frame
        local = Strips(
            first[owner],
            last[owner],
            np.maximum(strips.key_first[piece[owner]], other * self.frame),
            np.minimum(strips.key_stop[piece[owner]], (other + 1) * self.frame),
        )
        runs = band(local, away - width, away + width)
        rows = local.height[runs.strip]
        return united(strips, replace(runs, strip=piece[owner[runs.strip]]), rows)

    def signature(self, row: Ints, key: Ints, shape: tuple[int, int], scope: Scope) -> list[Ints]:
        place, key_place, apart = row % self.frame, key % self.frame, key // self.frame - row // self.frame
        single = (place + shape[0] <= self.frame) & (key_place + shape[1] <= self.frame)
        width = self._half_width(np.abs(apart))
        # Inside one frame each, only the way between the places counts, and how wide the window is.
        parts = [np.where(single, -1, place), np.where(single, np.where(width < 0, 0, key_place - place), key_place)]
        if max(shape) > self.frame:
            return [*parts, np.where(single, width, apart)]
        # Else a tile reaches into the next frame at most, so three widths tell all.
        return [*parts, width, *(np.where(single, 0, self._half_width(np.abs(apart + n))) for n in (-1, 1))]

    def transposed(self) -> Pattern:
        return self


PATTERN = Radial
