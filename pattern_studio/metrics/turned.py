"""How far a pattern turns the outputs of heads, and of layers that the model minds: what both damages weigh."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ORDER = 8  # of the mean over heads and layers: chosen in the study that `damage` names


def turned(dense: Tensor, sparse: Tensor, dot: Tensor) -> Tensor:
    """1 - cosine of outputs with and without a pattern, 0 to 1; of |o|^2, |o_M|^2 and o . o_M, each [heads].

    A cosine below 0 counts as 0, as does an output of 0.

    >>> turned(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([4.0, 1.0, 1.0]), torch.tensor([1.0, -1.0, 0.0])).tolist()
    [0.5, 1.0, 1.0]
    """
    size = (dense * sparse).sqrt()
    return 1 - torch.where(size > 0, dot / torch.where(size > 0, size, 1), 0).clamp(0, 1)


def weighed(layers: Sequence[Tensor], weights: Sequence[float]) -> float | None:
    """`(sum over layers of w_l (mean over the layer's heads of t^8))^(1/8)`, w with sum 1; None where all are 0.

    >>> weighed([torch.tensor([0.5, 0.5]), torch.tensor([1.0])], [1, 0])
    0.5
    """
    total = sum(weights)
    if not total:
        return None
    each = [float(one.pow(ORDER).mean()) for one in layers]
    return (sum(weight * one for weight, one in zip(weights, each, strict=True)) / total) ** (1 / ORDER)
