"""The spectral gap of a symmetric relation: how fast a random walk on it forgets where it began."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_LINES = 2048  # all eigenvalues of a dense matrix: some seconds


def spectral_gap(relation: NDArray[np.bool_]) -> float | None:
    """`1 - max |lambda|` over the walk's eigenvalues but the first, of `D^-1/2 A D^-1/2`; bool [lines, lines].

    From 0 (apart, or back and forth for ever) to 1 (one step reaches all alike). None where the relation is
    not symmetric, as causal ones are not, where a line is empty, and for a single line.

    Source: Chung, "Spectral graph theory" (1997); expander attention as in Exphormer (arXiv:2303.06147).

    >>> spectral_gap(np.ones((3, 3), bool)), spectral_gap(np.eye(2, dtype=bool)), spectral_gap(np.tri(3) > 0)
    (1.0, 0.0, None)
    """
    degree = relation.sum(1)
    if len(relation) < 2 or not degree.all() or not (relation == relation.T).all():
        return None
    scale = 1 / np.sqrt(degree)
    values = np.sort(np.abs(np.linalg.eigvalsh(relation * scale[:, None] * scale)))
    return float(np.clip(round(1 - values[-2], 12), 0, 1))
