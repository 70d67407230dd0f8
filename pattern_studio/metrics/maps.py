"""Figures per tile and per row, for pictures: the dense block mass and each row's recall."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..capture import Capture
from ..expr import Pattern
from .chunk import chunks
from .recall import Recall
from .subject import dense_subject, subjects
from .tile_mass import TileMass


def block_mass(capture: Capture, layer: int, block: int | tuple[int, int] = 128) -> NDArray[np.floating]:
    """Dense attention by tile: `P[h, I, J]` = mean over the rows of query block I of the mass in key block J.

    Float32 (float64 for a float64 capture) [heads, q_blocks, kv_blocks]; each `P[h, I]` adds up to 1.
    Streamed: memory grows with tiles. Raises StudioError where the layer is not in the capture or
    the tiles are too many.

    >>> from pattern_studio.capture import bundled
    >>> mass = block_mass(bundled(), layer=7, block=256)
    >>> mass.shape, mass[0, 0].tolist()
    ((9, 4, 4), [1.0, 0.0, 0.0, 0.0])
    """
    subject = dense_subject(capture, layer, block)
    mass = TileMass(subject)
    for chunk in chunks(subject):
        mass.add(chunk)
    block_q, tokens = subject.layout.block[0], subject.layer.tokens
    rows = np.minimum(block_q, tokens - np.arange(0, tokens, block_q))
    sums = mass.sums.cpu().numpy()
    return sums / rows[:, None].astype(sums.dtype)


def row_recall(
    pattern: Pattern, capture: Capture, layer: int, block: int | tuple[int, int] = 128
) -> NDArray[np.float64]:
    """Mass recall of every row, float64 [heads, rows]: see the metric `recall`.

    `block` matters only to patterns with `unit=block`. Raises StudioError where the layer is not in
    the capture, or the pattern does not fit its heads.

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> float(row_recall(ps.parse("causal & window(63, 0)"), bundled(), layer=7)[:, :64].min())
    1.0
    """
    (subject,) = subjects(pattern, capture, block=block, layers=[layer])
    recall = Recall(subject)
    for chunk in chunks(subject):
        recall.add(chunk)
    return recall.rows
