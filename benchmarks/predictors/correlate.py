"""Rank correlation of figures with a loss, its bootstrap interval, and where a figure misleads most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

DRAWS = 2000


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho of a figure with the loss that is added, over patterns.

    - low, high: its 95 % interval by bootstrap over patterns.
    - beyond_density: the same with the ranks of density taken out of both (partial correlation): density alone
      explains much, since fewer pairs cost more.
    """

    rho: float
    low: float
    high: float
    beyond_density: float | None


@dataclass(frozen=True)
class Misled:
    """The pair where following the figure costs the most: it calls `chosen` the better one, `other` adds less loss."""

    chosen: int
    other: int
    cost: float


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rho, ties sharing their mean rank; 0 where one of both is constant.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    return round(float(_pearson(rankdata(x), rankdata(y))), 12)


def correlation(x: ArrayLike, loss: ArrayLike, density: ArrayLike | None = None, seed: int = 0) -> Correlation:
    """Rho with its interval; `density` may be None, for density itself."""
    figure, added = np.asarray(x, float), np.asarray(loss, float)
    drawn = np.random.default_rng(seed).integers(0, len(added), (DRAWS, len(added)))
    rhos = _pearson(rankdata(figure[drawn], axis=1), rankdata(added[drawn], axis=1))
    low, high = np.percentile(rhos, [2.5, 97.5]).tolist()
    beyond = None
    if density is not None:
        a, b, c = spearman(figure, added), spearman(figure, density), spearman(added, density)
        rest = (1 - b * b) * (1 - c * c)
        beyond = float((a - b * c) / rest**0.5) if rest > 1e-12 else None
    return Correlation(spearman(figure, added), low, high, beyond)


def misled(x: ArrayLike, loss: ArrayLike) -> Misled | None:
    """The worst choice between two patterns by the figure, in the direction that it correlates; None where never.

    >>> misled([0.9, 0.8, 0.1], [0.5, 0.2, 0.9])
    Misled(chosen=0, other=1, cost=0.3)
    """
    figure, added = np.asarray(x, float), np.asarray(loss, float)
    sign = 1 if spearman(figure, added) >= 0 else -1
    better = sign * figure[:, None] < sign * figure[None, :]  # [chosen, other]
    cost = np.where(better, added[:, None] - added[None, :], -np.inf)
    chosen, other = np.unravel_index(int(np.argmax(cost)), cost.shape)
    worst = float(cost[chosen, other])
    return Misled(int(chosen), int(other), round(worst, 12)) if worst > 0 else None


def _pearson(x: NDArray, y: NDArray) -> NDArray:
    """Over the last axis; 0 where one of both is constant."""
    x, y = x - x.mean(-1, keepdims=True), y - y.mean(-1, keepdims=True)
    size = np.sqrt(np.square(x).sum(-1) * np.square(y).sum(-1))
    return np.where(size > 0, (x * y).sum(-1) / np.where(size > 0, size, 1), 0)
