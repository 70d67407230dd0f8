"""vertical_slash: whole columns and whole diagonals of each head, chosen by probes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole
from .probes import probe_lines
from .tiling import Tiling
from .to_pattern import by_head

CAUSAL, vertical, slash = PRIMITIVES["causal"], PRIMITIVES["vertical"], PRIMITIVES["slash"]


@dataclass(frozen=True, eq=False)
class ChosenLines:
    """Keys and distances, on the device that they were chosen on.

    verticals: int64 [batch, heads, n], keys; slashes: int64 [batch, heads, m], distances `i - j`.
    `first` is the smallest distance there is.
    """

    verticals: Tensor
    slashes: Tensor
    tiling: Tiling
    first: int

    def mask(self, lengths: Tensor | None = None) -> Tensor:
        """Every visible tile that a line crosses, bool [batch, heads, q_blocks, kv_blocks]; no host sync.

        A tile is kept whole, so the mask holds more pairs than the lines do.
        """
        tiling, device = self.tiling, self.verticals.device
        block_k = tiling.block[1]
        shape = (*self.verticals.shape[:2], tiling.kv_blocks)
        column = torch.zeros(shape, dtype=torch.bool, device=device).scatter_(-1, self.verticals // block_k, True)
        begin, last = tiling.rows(device)
        start = torch.arange(tiling.kv_blocks, device=device) * block_k
        stop = (start + block_k).clamp(max=tiling.kv_len)
        count = int(tiling.offset + tiling.q_len) - self.first
        chosen = torch.zeros((*shape[:2], count + 1), dtype=torch.int32, device=device)
        below = chosen.scatter_(-1, self.slashes - self.first + 1, 1).cumsum(-1)  # distances under each one
        low = (begin[..., None] - stop + 1 - self.first).clamp(0, count)  # [1, q_blocks, kv_blocks]
        high = (last[..., None] - start + 1 - self.first).clamp(0, count)
        crossed = [below.gather(-1, at.flatten().expand(*shape[:2], -1)) for at in (low, high)]
        slashed = (crossed[1] > crossed[0]).unflatten(-1, low.shape[1:])
        return (column[:, :, None] | slashed) & tiling.visible(device, lengths)[:, None]

    def pattern(self, item: int = 0) -> Pattern:
        """One item's lines, exactly: `causal & (vertical(...) | slash(...))` for each head.

        Raises StudioError for an item that is not in the batch.
        """
        batch = len(self.verticals)
        item = whole("a batch item", item, 0, max(batch - 1, 0))
        keys, distances = self.verticals[item].tolist(), self.slashes[item].tolist()
        patterns = []
        for columns, offsets in zip(keys, distances, strict=True):
            after = tuple(-offset for offset in offsets if offset < 0)
            lines = vertical(tuple(columns)) | slash(tuple(offset for offset in offsets if offset >= 0))
            lines = lines | slash(after).T if after else lines
            patterns.append(CAUSAL & lines if self.tiling.causal else lines)
        return by_head(patterns)


@torch.no_grad()
def vertical_slash(
    q: Tensor,
    k: Tensor,
    tiling: Tiling,
    *,
    verticals: int,
    slashes: int,
    probes: int = 64,
    scale: float | None = None,
    lengths: Tensor | None = None,
) -> ChosenLines:
    """The `verticals` keys and `slashes` distances that hold most of the probes' attention, per item and head.

    Key 0 and distance 0 are always among them, so no row is empty. Other arguments as for `probe_lines`.
    Raises StudioError where there are fewer keys or distances than asked for.

    Source: MInference (Jiang et al., arXiv:2407.02490).

    >>> q = k = torch.eye(4)[None, None] * 20
    >>> lines = vertical_slash(q, k, Tiling.of(q, k, block=1), verticals=2, slashes=1, probes=2)
    >>> str(lines.pattern())
    'causal & (vertical((0, 2)) | slash((0,)))'
    """
    lines = probe_lines(q, k, tiling, probes=probes, scale=scale, lengths=lengths)
    most = lines.vertical.shape[-1], lines.slash.shape[-1]
    for name, asked, there in zip(("verticals", "slashes"), (verticals, slashes), most, strict=True):
        if whole(name, asked, 1) > there:
            raise StudioError(f"expected at most {there} {name} for this problem, got {asked}; ask for fewer")
    columns, distances = lines.vertical.clone(), lines.slash.clone()
    columns[..., 0] = distances[..., -lines.first] = torch.inf
    return ChosenLines(_best(columns, verticals), _best(distances, slashes) + lines.first, tiling, lines.first)


def _best(mass: Tensor, count: int) -> Tensor:
    """Places of the `count` largest values, rising; equal ones go to the lower place."""
    return torch.sort(mass, dim=-1, descending=True, stable=True).indices[..., :count].sort(-1).values
