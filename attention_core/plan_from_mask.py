"""plan_from_mask(): a tensor of kept tiles on a device -> Plan, without waiting for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.problem import Problem, block_shape

from .block_mask import BlockMask
from .plan import Plan, ready
from .tiles import EDGE, MAX_UNITS


def plan_from_mask(
    mask: Tensor,
    *,
    q_len: int,
    kv_len: int,
    block: int | tuple[int, int],
    q_offset: int | None = None,
    causal: bool = False,
) -> Plan:
    """Plan the tiles that `mask` keeps, per batch entry and head, on the mask's device.

    mask: bool [batch or 1, heads or 1, ceil(q_len / block_q), ceil(kv_len / block_k)], True is kept. A
    size of 1 serves every batch entry, or every head. All pairs of a kept tile are allowed, those with
    j <= i with `causal`; query row r stands at i = r + q_offset, `kv_len - q_len` unless given.

    For CUDA masks the fused kernels' lists are built there and then by operations that never wait for
    the device and whose shapes follow from the mask's shape, so the mask may change at every step. Memory
    is 4 bytes a tile (a unit of at most 128 keys) in each direction, whether it is kept or not. The mask
    is copied: writing to it later changes nothing. The plain-torch backends read it back to the host.

    Raises StudioError, a ValueError, for another dtype or shape, naming what was expected.

    >>> mask = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()  # two batch entries, tiles below the diagonal
    >>> made = plan_from_mask(mask, q_len=100, kv_len=100, block=32, causal=True)
    >>> made.batch, made.problem.heads
    (2, 1)
    """
    size = block_shape(block)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.layout != torch.strided:
        got = f"{mask.dtype} {mask.layout}" if isinstance(mask, Tensor) else type(mask).__name__
        raise StudioError(f"mask must be a dense bool tensor, True where a tile is kept, got {got}; convert it")
    if mask.ndim != 4 or 0 in mask.shape[:2]:
        raise StudioError(
            f"mask must be [batch or 1, heads or 1, q_blocks, kv_blocks], got {list(mask.shape)}; "
            "add missing dimensions with unsqueeze"
        )
    problem = Problem(q_len, kv_len, q_offset, mask.shape[1])
    blocks = -(-problem.q_len // size[0]), -(-problem.kv_len // size[1])
    if tuple(mask.shape[2:]) != blocks:
        raise StudioError(
            f"mask must have {blocks[0]} query and {blocks[1]} key blocks for q_len {problem.q_len}, kv_len "
            f"{problem.kv_len} and block {size}, got {mask.shape[2]} and {mask.shape[3]}"
        )
    units = mask.numel() * max(n // min(n & -n, 128) for n in size)
    if max(problem.q_len, problem.kv_len) > EDGE or units > MAX_UNITS:
        raise StudioError(
            f"a mask serves lengths up to {EDGE:,} and {MAX_UNITS:,} units of at most 128 positions, got q_len "
            f"{problem.q_len:,}, kv_len {problem.kv_len:,} and {units:,} units; lower a pattern instead"
        )
    batch = mask.shape[0] if mask.shape[0] > 1 else None
    return ready(Plan(problem, size, mask.device, BlockMask(_copy(mask), problem, size, causal), batch))


def _copy(mask: Tensor) -> Tensor:
    return mask.detach().clone(memory_format=torch.contiguous_format)
