"""predicted_loss: by how much a text's loss should rise with a pattern in one head at a time, to second order."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ..capture import Capture, LossGradients
from ..expr import Pattern
from ..metrics.chunk import chunks
from ..metrics.subject import subjects


def predicted_loss(
    pattern: Pattern, capture: Capture, gradients: LossGradients, layer: int, block: int | tuple[int, int] = 128
) -> NDArray[np.float64]:
    """Nats summed over the text, for each head of the layer as if it alone had the pattern: float64 [heads].

    With d_i by how much the pattern moves row i's output and g_i the loss's gradients by it, `sqrt(aimed * blind) / 2`,
    `aimed = sum_i mean over draws of (g_i . d_i)^2` and `blind = sum_i |d_i|^2 mean |g_i|^2 / head_dim`: what
    `tile_importance` says of a single tile, of all that the pattern leaves out. An empty row gives 0, so d_i = -o_i.
    What several heads lose together may cost more than the sum.

    Raises StudioError as `analyze` does, for a layer without gradients, or gradients of another text or model.

    Source: as `tile_importance`.

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> ones = LossGradients({20: torch.ones(1, 9, 1024, 64)})
    >>> narrow, wide = (predicted_loss(ps.window(w, 0), bundled(), ones, 20).sum() for w in (63, 255))
    >>> bool(narrow > wide > 0), bool(predicted_loss(ps.dense, bundled(), ones, 20).any())
    (True, False)
    """
    subject = subjects(pattern, capture, block=block, layers=[layer])[0]
    gradient = gradients.of(capture, layer)
    sums = np.zeros((2, subject.layer.heads))
    for chunk in chunks(subject):
        moved = (chunk.sparse_out - chunk.dense_out).double()  # [heads, rows, dim]
        one = gradient[:, chunk.heads, chunk.first : chunk.stop].to(moved.device, torch.float64)
        aimed = (one * moved).sum(-1).square().mean(0).sum(-1)
        blind = (moved.square().mean(-1) * one.square().sum(-1).mean(0)).sum(-1)
        sums[:, chunk.heads] += torch.stack([aimed, blind]).cpu().numpy()
    return np.sqrt(sums[0] * sums[1]) / 2
