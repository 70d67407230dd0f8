"""What the fused Triton kernels serve: the rules by which `ops` chooses or refuses them."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

INSTALLED = importlib.util.find_spec("triton") is not None
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDEST = 256  # the largest head_dim or value_dim
BLOCK_Q = range(16, 257)  # smaller query blocks waste most of a tensor-core tile
GATHERED = 32  # key blocks smaller than this get dK and dV by adding to the gathered keys


def serves_block(block: tuple[int, int]) -> bool:
    """Whether layouts of this block size have fused kernels."""
    return block[0] in BLOCK_Q


def gathers_keys(block: tuple[int, int]) -> bool:
    """Whether the default backward adds dK and dV to gathered keys instead of walking key blocks."""
    return block[1] < GATHERED


def obstacle(q: Tensor, v: Tensor, block: tuple[int, int]) -> str | None:
    """Why the fused kernels can't serve these inputs, or None."""
    if not INSTALLED:
        return "the package triton is not installed"
    if not q.is_cuda and not _interpreted():
        return f"q is on {q.device}, not on a CUDA device"
    if q.dtype not in DTYPES:
        return f"q is {str(q.dtype).removeprefix('torch.')}, not float16, bfloat16 or float32"
    if max(q.shape[3], v.shape[3]) > WIDEST:
        return f"head_dim {q.shape[3]} or value_dim {v.shape[3]} is above {WIDEST}"
    if not serves_block(block):
        return f"block_q {block[0]} is not from {BLOCK_Q.start} to {BLOCK_Q.stop - 1}"
    return None


@torch.compiler.assume_constant_result  # a compiler can't trace the import
def _interpreted() -> bool:
    """Whether Triton runs its programs on the CPU (TRITON_INTERPRET=1), as the tests do."""
    import triton.knobs

    return bool(triton.knobs.runtime.interpret)
