"""TileMass: the dense attention mass of every tile, added up while a layer streams by."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import StudioError
from .chunk import Chunk
from .subject import Subject

MAX_TILES = 2**27  # 512 MiB of float32


class TileMass:
    """`sums[h, I, J]`: what head h's rows in query block I spend on key block J, as probabilities summed over rows."""

    def __init__(self, subject: Subject) -> None:
        layout = subject.layout
        shape = (subject.layer.heads, layout.q_blocks, layout.kv_blocks)
        if shape[0] * shape[1] * shape[2] > MAX_TILES:
            raise StudioError(
                f"{shape[0]} heads of {shape[1]:,} x {shape[2]:,} tiles at block {layout.block} are more than the "
                f"{MAX_TILES:,} whose mass is kept; use a larger block, or leave the metric 'oracle' out"
            )
        self.block = layout.block
        dtype = torch.float64 if subject.layer.q.dtype == torch.float64 else torch.float32
        self.sums = torch.zeros(shape, dtype=dtype, device=subject.layer.q.device)

    def add(self, chunk: Chunk) -> None:
        """Take in one chunk, whose rows may begin and end inside a block."""
        block_q, block_k = self.block
        whole = chunk.dense.shape[-1] // block_k
        strips = chunk.dense[..., : whole * block_k].unflatten(-1, (whole, block_k)).sum(-1)  # [heads, rows, tiles]
        tail = chunk.dense[..., whole * block_k :].sum(-1, keepdim=True)
        strips = torch.cat([strips, tail], -1)
        for line in range(chunk.first // block_q, -(-chunk.stop // block_q)):
            begin, end = line * block_q - chunk.first, (line + 1) * block_q - chunk.first
            mass: Tensor = strips[:, max(begin, 0) : end].sum(1)
            width = min(mass.shape[-1], self.sums.shape[-1])  # without a tail there is no tile for its 0
            self.sums[chunk.heads, line, :width] += mass[:, :width]
