"""A layout's attention on any device in plain torch: each stretch of rows reads only the keys that it has active."""

from __future__ import annotations

import torch
from torch import Tensor

from ..layout import BlockLayout

ROWS = 128


def sparse_attention(layout: BlockLayout, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Softmax over the layout's pairs of scale * q.k, times v; an empty row gives 0.

    Args:
        q: [heads, q_len, head_dim], as the layout's heads.
        k, v: [kv_heads, kv_len, head_dim]; query head h reads KV head h // (heads / kv_heads).

    Returns:
        [heads, q_len, head_dim]. Work follows the keys that any of 128 rows has, never rows times all keys.

    >>> import pattern_studio as ps
    >>> v = torch.tensor([[[1.0], [2.0], [4.0]]])
    >>> sparse_attention(ps.lower(ps.window(1, 0), q_len=3), 0 * v, v, v, 1.0).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    out = torch.empty_like(q)
    share = layout.problem.heads // k.shape[0]
    for first in range(0, layout.problem.q_len, ROWS):
        stop = min(first + ROWS, layout.problem.q_len)
        read: dict[int, tuple[Tensor, Tensor]] = {}  # by group: heads with one pattern expand it once
        for head, group in enumerate(layout.head_group.tolist()):
            if group not in read:
                allowed = torch.from_numpy(layout.expand(head, first, stop))
                keys = allowed.any(0).nonzero().flatten()
                read[group] = keys.to(q.device), ~allowed[:, keys].to(q.device)
            keys, hidden = read[group]
            if not len(keys):
                out[head, first:stop] = 0
                continue
            scores = q[head, first:stop] @ k[head // share, keys].mT * scale  # [rows, keys]
            weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
            # 0 / 0 of an empty row; a NaN of the model's own stays one, as its row is not empty.
            weights = weights.masked_fill_(hidden.all(-1, keepdim=True), 0)
            out[head, first:stop] = weights @ v[head // share, keys]
    return out
