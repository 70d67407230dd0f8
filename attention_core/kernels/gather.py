"""Which keys stand in the key slots of a line, and which of their pairs are allowed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .runs import KeyRuns


@dataclass(frozen=True)
class Slots:
    """Slots `first : stop` of some lines.

    key int64 [lines, slots]; allowed bool [lines, rows, slots] or None where every pair is allowed;
    live bool [lines, slots], keys that at least one row of the line is allowed, or None where all are.
    A slot that is not live still names some key of the line; nothing of it may be used.
    """

    key: Tensor
    allowed: Tensor | None
    live: Tensor | None


def rows_of(runs: KeyRuns, lines: Tensor) -> Tensor:
    """Query rows of each line, int64 [lines, rows]; rows at or beyond q_len do not exist."""
    # A block taller than the input (one decoded token, say) has no more rows than the input.
    rows = torch.arange(min(runs.block_q, runs.q_len), device=lines.device)
    return (lines % runs.q_blocks * runs.block_q)[:, None] + rows


def slots_of(runs: KeyRuns, lines: Tensor, first: int, stop: int, masked: bool) -> Slots:
    """Slots `first : stop` of `lines`; without `masked` the caller knows that all are FULL keys."""
    begin, end = runs.key_ptr[runs.indptr[lines]], runs.key_ptr[runs.indptr[lines + 1]]  # [lines]
    slot = torch.arange(first, stop, device=lines.device)
    number = torch.minimum(begin[:, None] + slot, end[:, None] - 1)  # [lines, slots], counted over the whole plan
    run = torch.searchsorted(runs.key_ptr, number, right=True) - 1
    key = runs.first[run] + (number - runs.key_ptr[run])
    if not masked:
        return Slots(key, None, None)

    row = rows_of(runs, lines)
    exists = (slot < (end - begin)[:, None])[:, None, :] & (row < runs.q_len)[:, :, None]  # [lines, rows, slots]
    allowed = exists
    if runs.banded:
        distance = key.int()[:, None, :] - row.int()[:, :, None]  # [lines, rows, slots]
        allowed = exists & (distance >= runs.low[run][:, None, :]) & (distance <= runs.high[run][:, None, :])
    if len(runs.masks):
        allowed = allowed & _bits(runs, run, key, row.shape[1])
    return Slots(key, allowed, allowed.any(1))


def _bits(runs: KeyRuns, run: Tensor, key: Tensor, rows: int) -> Tensor:
    """Bit masks of the slots, True where a run has none, bool [lines, rows, slots]."""
    mask = runs.mask[run]  # [lines, slots]
    packed = runs.masks[mask.clamp(min=0), key % runs.block_k]  # [lines, slots, ceil(block_q / 8)]
    bit = torch.arange(8, dtype=torch.uint8, device=key.device)
    unpacked = (packed[..., None] >> bit & 1).flatten(2)[..., :rows]  # [lines, slots, rows]
    return unpacked.mT.bool() | (mask < 0)[:, None, :]
