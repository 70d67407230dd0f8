"""Triton programs of the content scores and of the choice by budget; the torch code beside them says what they do.

They serve CUDA tensors outside a compiler's trace, where no gradient is asked for. q and k of half precision are
multiplied on tensor cores and summed in float32, float32 as float32.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

INSTALLED = importlib.util.find_spec("triton") is not None
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDEST = 256  # the largest head_dim
LONGEST_ROW = 65536  # tiles of a row that one program holds


def served(*tensors: Tensor) -> bool:
    """Whether the programs take these tensors; the first is q, or scores."""
    first = tensors[0]
    return (
        INSTALLED
        and on_device(first)
        and first.numel() > 0
        and not torch.compiler.is_compiling()
        and all(type(x) is Tensor and x.dtype in DTYPES for x in tensors)
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
    )


def on_device(x: Tensor) -> bool:
    """Whether Triton runs where x is."""
    return x.is_cuda


def multiplied(q: Tensor, k: Tensor) -> bool:
    """Whether the programs multiply these q and k."""
    return served(q, k) and k.numel() > 0 and q.dtype == k.dtype and q.shape[-1] <= WIDEST


__all__ = ["LONGEST_ROW", "multiplied", "on_device", "served"]
