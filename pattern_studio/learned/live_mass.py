"""live_mass: the dense attention mass of each tile of a running model's q and k, on their device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .narrowed import Narrowed
from .tiling import Tiling


@torch.no_grad()
def live_mass(q: Tensor, k: Tensor, tiling: Tiling, *, scale: float, narrowed: Narrowed | None = None) -> Tensor:
    """Each tile's dense softmax probability, a mean over its rows: float32 [batch, heads, q_blocks, kv_blocks].

    What `metrics.block_mass` gives of a capture, for training a gate beside a model. q [batch, heads,
    q_len, head_dim], k [batch, kv_heads, kv_len, head_dim]. Computed a block of queries at a time:
    memory grows with the keys, never with queries times keys. A row that sees no key counts as 0.
    `narrowed` leaves out what masks do, and rows of padding.

    >>> q, k = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 2)
    >>> (24 * live_mass(q, k, Tiling(4, 4, 2), scale=1.0)[0, 0]).round().int().tolist()  # (2/3 + 2/4) / 2 and the rest
    [[24, 0], [14, 10]]
    """
    tall, wide = tiling.block
    real = Narrowed() if narrowed is None else narrowed
    keys = k.float().repeat_interleave(q.shape[1] // k.shape[1], 1).mT
    parts = []
    for first in range(0, tiling.q_len, tall):
        stop = min(first + tall, tiling.q_len)
        scores = q[:, :, first:stop].float() @ keys * scale
        scores = scores.masked_fill(~real.allowed(tiling, q.device, first, stop), -torch.inf)
        mass = pad(scores.softmax(-1).nan_to_num(0).sum(-2), (0, -tiling.kv_len % wide))
        parts.append(mass.unflatten(-1, (-1, wide)).sum(-1))
    height = real.height(tiling, q.device).clamp(min=1)[:, None, :, None]
    return torch.stack(parts, 2) / height
