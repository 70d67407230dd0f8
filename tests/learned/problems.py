"""Small problems with q and k, and what float64 says about them, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from pattern_studio.learned import Tiling


@dataclass(frozen=True, eq=False)
class Small:
    """q, k and their tiling; `lengths` or None."""

    q: Tensor
    k: Tensor
    tiling: Tiling
    lengths: Tensor | None

    def own(self, item: int) -> int:
        """Positions of an item that are no padding."""
        return self.tiling.offset + self.tiling.q_len if self.lengths is None else int(self.lengths[item])

    def allowed(self, item: int) -> Tensor:
        """Pairs of the item's dense mask, bool [q_len, kv_len]."""
        i = torch.arange(self.tiling.q_len)[:, None] + self.tiling.offset
        j = torch.arange(self.tiling.kv_len)[None]
        mask = j <= i if self.tiling.causal else (j >= 0) & (i == i)
        if self.lengths is not None:
            mask = mask & (i < self.lengths[item]) & (j < self.lengths[item])
        return mask

    def attention(self, item: int, scale: float) -> Tensor:
        """Dense softmax, float64 [heads, q_len, kv_len]; 0 where nothing is allowed."""
        share = self.q.shape[1] // self.k.shape[1]
        scores = self.q[item].double() @ self.k[item].double().repeat_interleave(share, 0).mT * scale
        mask = self.allowed(item)
        return torch.where(mask, torch.softmax(scores.masked_fill(~mask, -torch.inf), -1), 0)

    def tiles(self, pairs: Tensor) -> Tensor:
        """Sums of [..., q_len, kv_len] over tiles."""
        (block_q, block_k), tiling = self.tiling.block, self.tiling
        pad = (0, tiling.kv_blocks * block_k - tiling.kv_len, 0, tiling.q_blocks * block_q - tiling.q_len)
        wide = torch.nn.functional.pad(pairs.double(), pad)
        return wide.unflatten(-1, (tiling.kv_blocks, block_k)).sum(-1).unflatten(-2, (-1, block_q)).sum(-2)


@st.composite
def smalls(
    draw, *, padded: bool | None = None, unit: int = 1, causal: bool | None = None, whole: bool = False
) -> Small:
    """A batch of one to three items; blocks are multiples of `unit`; `whole` draws whole numbers for q and k."""
    batch, kv_heads, share, dim = (draw(st.integers(1, most)) for most in (3, 2, 3, 4))
    padded = draw(st.booleans()) if padded is None else padded
    q_len = draw(st.integers(1, 24))
    kv_len = q_len if padded else q_len + draw(st.integers(0, 9))
    block = draw(st.integers(1, 6)) * unit, draw(st.integers(1, 6)) * unit
    tiling = Tiling(q_len, kv_len, block, None, draw(st.booleans()) if causal is None else causal)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def tensor(heads: int, tokens: int) -> Tensor:
        x = torch.randn(batch, heads, tokens, dim, generator=generator)
        return (x * 2).round() if whole else x

    lengths = torch.randint(0, q_len + 1, (batch,), generator=generator) if padded else None
    return Small(tensor(kv_heads * share, q_len), tensor(kv_heads, kv_len), tiling, lengths)
