"""A time as a sum of what its parts take, fitted to measured cells."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

CELLS = 4  # of different work, that a fit of two numbers needs to be checked by leaving each out

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Milliseconds of one of each part, none below 0.

    `error`, `worst`: of each cell predicted from the others, |predicted / measured - 1|, its median and largest.
    """

    weights: tuple[float, ...]
    error: float
    worst: float

    def ms(self, work: Floats | list[float]) -> float:
        """The time of so much of each part."""
        return float(np.asarray(work) @ np.asarray(self.weights))


def fitted(work: Floats, ms: Floats) -> Fit | None:
    """Non-negative least squares of relative errors: `work` [cells, parts], the first part the call; `ms` [cells].

    None where cells of different work are fewer than twice the parts, or where no more than the call costs time.
    Every choice of parts is solved, which for five is sooner done than an iteration.

    >>> fit = fitted(np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0], [1.0, 4.0]]), np.array([2.0, 3.0, 4.0, 5.0]))
    >>> [round(one, 9) for one in fit.weights], fit.worst < 1e-9, round(fit.ms([1, 10]), 9)
    ([1.0, 1.0], True, 11.0)
    """
    if len(np.unique(work, axis=0)) < max(CELLS, 2 * work.shape[1]):
        return None
    scale = np.abs(work).max(0)
    scale[scale == 0] = 1.0
    relative = work / scale / ms[:, None]
    products = relative[:, :, None] * relative[:, None, :]
    gram, right = products.sum(0), relative.sum(0)
    whole = _nonnegative(gram[None], right[None])[0] / scale
    if not whole[1:].any():
        return None
    others = _nonnegative(gram - products, right - relative) / scale
    errors = np.abs((others * work).sum(1) / ms - 1)
    return Fit(tuple(whole.tolist()), float(np.median(errors)), float(errors.max()))


def _nonnegative(gram: Floats, right: Floats) -> Floats:
    """The least `x' gram x - 2 right x` over x >= 0, for each of many: [many, parts, parts], [many, parts]."""
    many, parts = right.shape
    best, found = np.full(many, np.inf), np.zeros((many, parts))
    for size in range(1, parts + 1):
        for chosen in combinations(range(parts), size):
            some = list(chosen)
            x = (np.linalg.pinv(gram[:, some][:, :, some], hermitian=True) @ right[:, some, None])[..., 0]
            cost = np.where((x >= 0).all(1), -(x * right[:, some]).sum(1), np.inf)
            better = cost < best - 1e-9  # parts that add nothing are left out
            best[better] = cost[better]
            found[better] = 0.0
            found[np.flatnonzero(better)[:, None], some] = x[better]
    return found
