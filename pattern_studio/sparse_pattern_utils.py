"""The names that the guide taught: quality, statistics and a picture of a pattern that is given as an array or layout.

They are thin fronts for people who have code with these names. `analyze()` and `layout_stats()` say more, of patterns
at any length.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import StudioError
from .layout import BlockLayout
from .lowering import from_mask
from .problem import Problem

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TOLERANCE = 0.01  # of a row of attention weights against 1: float16 rows of thousands of keys are off by this much


@dataclass(frozen=True)
class PatternQuality:
    """What `analyze_pattern_quality` found; whatever needs a reference is None without one.

    - coverage_ratio: mean over rows and heads of the attention that the pattern keeps (mass recall).
    - locality_score: kept cells on the diagonal or beside it / kept cells; None where nothing is kept.
    - efficiency_score: coverage / the coverage of as many of the best cells of each head, 0 to 1. It is no
      speed-up: that has to be timed.
    - approximation_error: `|A - S| / |A|` (Frobenius), with S the reference renormalised on the pattern; rows of
      S without a key are 0.
    - density: kept cells / cells.
    """

    coverage_ratio: float | None
    locality_score: float | None
    efficiency_score: float | None
    approximation_error: float | None
    density: float


class PatternQualityAnalyzer:
    """Compares a pattern with attention weights that are held as a whole: for short texts and for old code."""

    def analyze_pattern_quality(self, sparse_pattern: Any, reference_attention: Any | None = None) -> PatternQuality:
        """Quality of a pattern against dense attention weights.

        Args:
            sparse_pattern: bool (or 0 and 1) [rows, keys] or [heads, rows, keys], an array or tensor of tokens or of
                blocks, or a BlockLayout of at most some thousand tokens.
            reference_attention: softmax weights [n, n], [heads, n, n] or [batch, heads, n, n]; n is a whole number of
                the pattern's rows. One pattern serves all heads, else heads must agree.

        Raises:
            StudioError: shapes that don't fit, values that are no pattern, or weights that are no softmax.

        >>> import numpy as np
        >>> quality = PatternQualityAnalyzer().analyze_pattern_quality(np.eye(2, dtype=bool), [[1, 0], [0.75, 0.25]])
        >>> quality.coverage_ratio, quality.efficiency_score, quality.locality_score
        (0.625, 0.7142857142857143, 1.0)
        >>> PatternQualityAnalyzer().analyze_pattern_quality(np.eye(2, dtype=bool)).coverage_ratio is None
        True
        """
        pattern = _cells(sparse_pattern)
        rows, keys = np.indices(pattern.shape[1:])
        kept = int(pattern.sum())
        locality = float(pattern[:, abs(rows - keys) <= 1].sum() / kept) if kept else None
        density = kept / pattern.size
        if reference_attention is None:
            return PatternQuality(None, locality, None, None, density)
        attention = _weights(reference_attention, pattern)
        n, heads = attention.shape[-1], attention.shape[1]
        side = n // pattern.shape[1], n // pattern.shape[2]
        mask = np.broadcast_to(pattern.repeat(side[0], 1).repeat(side[1], 2), (heads, n, n))
        own = np.where(mask, attention, 0)
        mass = own.sum(-1, keepdims=True)
        sparse = own / np.where(mass > 0, mass, 1)
        coverage = float(mass.mean())
        shape = (heads, pattern.shape[1], side[0], pattern.shape[2], side[1])
        cells = attention.mean(0).reshape(shape).sum((2, 4)).reshape(heads, -1)
        budget = np.broadcast_to(pattern.reshape(len(pattern), -1).sum(1), heads)
        best = sum(np.sort(line)[::-1][:count].sum() for line, count in zip(cells, budget, strict=True)) / (heads * n)
        error = float(np.linalg.norm(attention - sparse) / np.linalg.norm(attention))
        return PatternQuality(coverage, locality, min(float(coverage / best), 1.0) if best else None, error, density)


def pattern_statistics(pattern: Any) -> dict[str, float | int | None]:
    """Counts of a pattern in its own cells, tokens or blocks as it is given; see `analyze_pattern_quality`.

    `density`, `avg_row_density`, `min_row_density`, `max_row_density` and `diagonal_density` are fractions kept,
    `cells` and `empty_rows` counts over heads, `balance` the most cells of a row / their mean.

    Raises:
        StudioError: no pattern.

    >>> stats = pattern_statistics([[1, 0], [1, 1]])
    >>> stats["avg_row_density"], stats["diagonal_density"], stats["cells"], stats["balance"]
    (0.75, 1.0, 3, 1.3333333333333333)
    """
    cells = _cells(pattern)
    rows = cells.mean(-1)
    counts = cells.sum(-1)
    return {
        "cells": int(cells.sum()),
        "density": float(cells.mean()),
        "avg_row_density": float(rows.mean()),
        "min_row_density": float(rows.min()),
        "max_row_density": float(rows.max()),
        "diagonal_density": float(cells.diagonal(axis1=1, axis2=2).mean()),
        "empty_rows": int((counts == 0).sum()),
        "balance": float(counts.max() / counts.mean()) if counts.any() else None,
    }


class PatternVisualizer:
    """Pictures of a pattern."""

    def visualize_pattern(
        self, pattern: Any, title: str = "", save_path: str | os.PathLike[str] | None = None, head: int = 0
    ) -> Figure | Path:
        """One head as a picture file (.png, .svg, .html), or as a Plotly figure where no path is given.

        The title is shown in figures and .html; .svg and .png carry it as their title, which viewers may show.

        Raises:
            StudioError: no pattern, no such head, another suffix, or plotly missing where it is needed.

        >>> PatternVisualizer().visualize_pattern([[1, 0], [1, 1]], title="Causal").layout.title.text
        'Causal'
        """
        from . import plot

        layout = pattern if isinstance(pattern, BlockLayout) else _as_layout(_cells(pattern))
        if save_path is None:
            return plot.tile_map(layout, head).update_layout(title=title, margin_t=60)
        path = Path(save_path)
        plot.write(layout, path, head)
        if title:
            data = path.read_bytes()
            path.write_bytes(_TITLED[path.suffix.lower()](data, title))
        return path


def _cells(pattern: Any) -> NDArray[np.bool_]:
    """Any pattern as bool [heads, rows, keys]."""
    if isinstance(pattern, BlockLayout):
        return np.stack([pattern.expand(head) for head in range(pattern.problem.heads)])
    array = np.asarray(pattern.detach().cpu() if hasattr(pattern, "detach") else pattern)
    if array.ndim == 2:
        array = array[None]
    good = array.ndim == 3 and array.size and array.dtype.kind in "buif" and bool(((array == 0) | (array == 1)).all())
    if not good:
        raise StudioError(
            f"expected a pattern as bool (or 0 and 1) [rows, keys] or [heads, rows, keys], got {array.dtype} "
            f"{list(array.shape)}; lower a Pattern with lower(pattern, q_len=...) first"
        )
    return array.astype(bool)


def _weights(reference: Any, pattern: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Attention weights as float64 [batch, heads, n, n], checked against the pattern."""
    given = reference.detach().cpu().double() if hasattr(reference, "detach") else reference
    weights = np.asarray(given, float)
    weights = weights.reshape((1,) * (4 - weights.ndim) + weights.shape) if 2 <= weights.ndim <= 4 else weights
    n, heads = weights.shape[-1], len(pattern)
    fits = weights.ndim == 4 and weights.shape[2] == n and not n % pattern.shape[1] and not n % pattern.shape[2]
    if not fits or heads not in (1, weights.shape[1]):
        raise StudioError(
            f"expected attention weights [batch, heads, n, n] for a pattern {list(pattern.shape)}, n a multiple of "
            f"its rows and keys, got {list(weights.shape)}; take weights of the same heads and length"
        )
    if not (np.abs(weights.sum(-1) - 1) <= TOLERANCE).all() or not (weights >= 0).all():
        raise StudioError(
            "expected attention weights whose rows are at least 0 and add up to 1, got others (or NaN); pass what "
            "softmax returned"
        )
    return weights


def _as_layout(cells: NDArray[np.bool_]) -> BlockLayout:
    return from_mask(cells, Problem(cells.shape[1], cells.shape[2], 0, len(cells)), 1)


def _png(data: bytes, title: str) -> bytes:
    chunk = b"iTXt" + b"Title\0\0\0\0\0" + title.encode()
    framed = (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    return data[:33] + framed + data[33:]  # after the signature and IHDR


_TITLED = {
    ".png": _png,
    ".svg": lambda data, title: data.replace(b">", f"><title>{escape(title)}</title>".encode(), 1),
    ".html": lambda data, title: data.replace(b"<body>", f"<body><h1>{escape(title)}</h1>".encode(), 1),
}
