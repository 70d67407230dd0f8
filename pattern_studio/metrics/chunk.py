"""Chunk: a stretch of query rows of a layer, with what metrics ask about it, each computed once.

Chunks are why nothing here is ever an n x n array: every metric adds up what it needs from one
chunk after the other. Sizes below: `heads` query heads that share one KV head, `rows` query rows,
`keys` the keys from 0 up to the last one that any of the rows sees under the dense mask D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .subject import Subject

CELLS = 2**21  # of heads * rows * keys: a handful of such arrays, 8 MiB each in float32, are alive at a time
MAX_ROWS = 256  # beyond it, a causal chunk computes more of the upper triangle than it saves in calls
TINY = 1e-30  # a softmax over keys that hold less than this would lose digits to float32's smallest number


@dataclass(frozen=True, eq=False)
class Chunk:
    """Query rows `first : stop` of the query heads `heads`; float32, or float64 where the capture is.

    - scores [heads, rows, keys]: scale * q.k, -inf outside D.
    - mask [heads or 1, rows, keys]: 1 where the pattern, inside D, allows the pair, else 0.
    - v [keys, head_dim]: the values.
    """

    heads: slice
    first: int
    stop: int
    scores: Tensor
    mask: Tensor
    v: Tensor

    @cached_property
    def dense(self) -> Tensor:
        """Dense attention: softmax of the scores under D, [heads, rows, keys]."""
        return torch.softmax(self.scores, -1)

    @cached_property
    def kept(self) -> Tensor:
        """What of the dense attention lies on the pattern, [heads, rows, keys], not renormalised."""
        return self.dense * self.mask

    @cached_property
    def recall(self) -> Tensor:
        """Mass recall r of each row, [heads, rows]; 0 on an empty row.

        Both sums run in one order, so by the monotonicity of rounding r never exceeds 1, is exactly 1
        where nothing is dropped, and never falls when the pattern grows.
        """
        return self.kept.sum(-1) / self.dense.sum(-1)

    @cached_property
    def log_recall(self) -> Tensor:
        """ln r = LSE_pattern - LSE_dense of each row, [heads, rows]; -inf on an empty row only."""
        return self._own_softmax[1]

    @cached_property
    def dense_out(self) -> Tensor:
        """Dense attention's output, [heads, rows, head_dim]."""
        return _mix(self.dense, self.v)

    @cached_property
    def sparse_out(self) -> Tensor:
        """The pattern's output, its softmax renormalised, [heads, rows, head_dim]; 0 on an empty row."""
        return _mix(self._own_softmax[0], self.v)

    @cached_property
    def _own_softmax(self) -> tuple[Tensor, Tensor]:
        """Weights in proportion to the pattern's own softmax, and ln r."""
        faint = (self.kept.sum(-1) < TINY) & (self.mask.sum(-1) > 0)
        if not faint.any():
            return self.kept, self.recall.log()
        # Rows that keep only keys of hardly any dense probability: relative to their own LSE they are like others.
        scores = self.scores + self.mask.log()
        own = scores.logsumexp(-1)
        weights = (scores - torch.where(faint, own, 0).unsqueeze(-1)).exp()
        log_recall = own - self.scores.logsumexp(-1)
        return torch.where(faint.unsqueeze(-1), weights, self.kept), torch.where(faint, log_recall, self.recall.log())


def chunks(subject: Subject) -> Iterator[Chunk]:
    """The layer's rows in order, a few at a time, all KV heads of a stretch after one another.

    >>> from pattern_studio.capture import bundled
    >>> from pattern_studio.metrics.subject import dense_subject
    >>> first = next(chunks(dense_subject(bundled(), layer=7, block=128)))
    >>> first.heads, first.scores.shape
    (slice(0, 3, None), torch.Size([3, 256, 256]))
    """
    layer, causal, kept = subject.layer, subject.capture.causal, subject.kept
    dtype = torch.float64 if layer.q.dtype == torch.float64 else torch.float32
    share = layer.heads // layer.kv_heads
    with torch.no_grad():
        # The scale goes into q, where it costs the least.
        q = layer.q.to(dtype) * subject.capture.scale
        k, v = layer.k.to(dtype), layer.v.to(dtype)
        rows = max(1, min(MAX_ROWS, CELLS // (share * layer.tokens)))
        above = torch.full((rows, rows), -torch.inf, dtype=dtype, device=q.device).triu(1)
        for first in range(0, layer.tokens, rows):
            stop = min(first + rows, layer.tokens)
            keys = stop if causal else layer.tokens
            masks: dict[int, Tensor] = {}  # by layout group: heads with one pattern expand it once
            for kv_head in range(layer.kv_heads):
                heads = slice(kv_head * share, (kv_head + 1) * share)
                scores = q[heads, first:stop] @ k[kv_head, :keys].T
                if causal:
                    scores[..., first:] += above[: stop - first, : stop - first]
                groups = kept.head_group[heads].tolist()
                for head, group in enumerate(groups, heads.start):
                    if group not in masks:
                        mask = torch.from_numpy(kept.expand(head, first, stop)[:, :keys])
                        masks[group] = mask.to(q.device, dtype)
                distinct = groups[:1] if len(set(groups)) == 1 else groups
                mask = torch.stack([masks[group] for group in distinct])
                yield Chunk(heads, first, stop, scores, mask, v[kv_head, :keys])


def _mix(weights: Tensor, v: Tensor) -> Tensor:
    total = weights.sum(-1, keepdim=True)
    return weights @ v / torch.where(total > 0, total, 1)
