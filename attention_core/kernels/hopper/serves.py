"""What the Hopper kernels serve: the rule by which `ops` chooses or refuses them. Imports no Triton."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache

import torch
from torch import Tensor

TRITONS = ("3.6", "3.9")  # Gluon is experimental: each version named here is compiled for in the tests
DTYPES = (torch.float16, torch.bfloat16)
HEAD_DIMS = (64, 128)
BLOCK_Q = (128, 256)  # two consumers of 64 rows share each tile of keys
BLOCK_K_BACKWARD = (128, 256)  # likewise, with keys and queries in each other's places
FINEST = 8  # neighbouring keys: the least that a box of the copy engine writes into swizzled memory
CHOSEN_BY_AUTO = True  # proved against float64 and measured on an H100: benchmarks/notes/hopper.md
DROPOUT_BY_AUTO = True  # likewise, every cell with dropout


def obstacle(q: Tensor, v: Tensor, block: tuple[int, int]) -> str | None:
    """Why the Hopper kernels can't serve these inputs, or None; whatever they can't, the portable kernels may."""
    return _machine(q) or unserved(q.dtype, q.shape[3], v.shape[3], block)


def unserved(dtype: torch.dtype, head_dim: int, value_dim: int, block: tuple[int, int]) -> str | None:
    """Why no Hopper kernel is built for such inputs, on whatever machine, or None.

    >>> unserved(torch.bfloat16, 128, 128, (128, 128))
    >>> unserved(torch.bfloat16, 96, 96, (128, 128))
    'head_dim 96 and value_dim 96 are not both 64 or both 128'
    """
    if dtype not in DTYPES:
        return f"q is {str(dtype).removeprefix('torch.')}, not float16 or bfloat16"
    if head_dim != value_dim or head_dim not in HEAD_DIMS:
        return f"head_dim {head_dim} and value_dim {value_dim} are not both 64 or both 128"
    if block[0] not in BLOCK_Q:
        return f"block_q {block[0]} is not 128 or 256"
    if (block[1] & -block[1]) < FINEST:
        return f"block_k {block[1]} is not a multiple of {FINEST}"
    return None


def unserved_backward(block: tuple[int, int], by_key: bool) -> str | None:
    """Why the backward of such lists is the portable kernels', or None.

    >>> unserved_backward((128, 64), by_key=True)
    'block_k 64 is not 128 or 256'
    """
    if not by_key:
        return "dK and dV are added to gathered keys, without lists by keys"
    if block[1] not in BLOCK_K_BACKWARD:
        return f"block_k {block[1]} is not 128 or 256"
    return None


def _machine(q: Tensor) -> str | None:
    version = _triton()
    if version is None:
        return "the package triton is not installed"
    if version not in TRITONS:
        return f"triton {version} is installed, not {' or '.join(TRITONS)}"
    if not q.is_cuda:
        return f"q is on {q.device}, not on a CUDA device of compute capability 9.0"
    capability = torch.cuda.get_device_capability(q.device)
    if capability != (9, 0):
        return f"{q.device} has compute capability {capability[0]}.{capability[1]}, not 9.0"
    return None


@cache
def _triton() -> str | None:
    """Major and minor version of the installed Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    return ".".join(importlib.metadata.version("triton").split(".")[:2])
