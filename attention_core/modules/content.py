"""ContentChoice: tiles chosen from each call's own q and k, by a score that needs no training and has no weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.learned import Narrowed, Tiling, choose, mean_query, top_p
from pattern_studio.problem import block_shape, whole


@dataclass(frozen=True)
class ContentChoice:
    """Each row of tiles keeps those that the mean query of its rows finds most mass in, beside sinks and diagonal.

    By `density` each head keeps that share of its visible tiles; by `quality_threshold` each row the fewest
    whose estimated mass reaches it. `block` is the largest tile: where a density does not pay for its sinks
    and diagonal, as with short inputs, the largest halving of it that does is taken.

    Raises StudioError unless exactly one of the two is given, and at a call where no block pays for the density.
    """

    density: float | None = None
    quality_threshold: float | None = None
    block: tuple[int, int] = (64, 64)
    sinks: int = 1

    def __post_init__(self) -> None:
        if (self.quality_threshold is None) == (self.density is None):
            raise StudioError(
                f"give either quality_threshold or density, got {self.quality_threshold!r} and {self.density!r}: a "
                "predicted mass or a budget decides how much is kept"
            )
        for name in ("density", "quality_threshold"):
            share = getattr(self, name)
            if share is not None and (
                isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1
            ):
                raise StudioError(f"{name} lies above 0 and up to 1, got {share!r}; it is the share that is kept")
        object.__setattr__(self, "block", block_shape(self.block))
        whole("sinks", self.sinks, 0)

    @torch.no_grad()
    def choose(self, q: Tensor, k: Tensor, causal: bool, narrowed: Narrowed | None) -> tuple[Tensor, tuple[int, int]]:
        """Kept tiles, bool [batch, heads, q_blocks, kv_blocks], and their block."""
        tiling = Tiling.of(q, k, self.block, causal=causal)
        kept = {"sinks": self.sinks, "diagonal": causal or q.shape[2] == k.shape[2], "narrowed": narrowed}
        if self.density is None:
            scores = mean_query(q, k, tiling, narrowed=narrowed)
            assert self.quality_threshold is not None  # one of the two is given
            return top_p(scores, tiling, self.quality_threshold, **kept), tiling.block
        while not self._affordable(tiling, kept["diagonal"]) and tiling.block != (1, 1):
            tiling = Tiling.of(q, k, (max(tiling.block[0] // 2, 1), max(tiling.block[1] // 2, 1)), causal=causal)
        return choose(mean_query, q, k, tiling, self.density, **kept), tiling.block

    def _affordable(self, tiling: Tiling, diagonal: bool) -> bool:
        total, least = tiling.counts(self.sinks, diagonal)
        return least <= int(total * (self.density or 0) + 1e-9)
