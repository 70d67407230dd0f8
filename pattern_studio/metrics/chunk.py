"""Chunk: a stretch of query rows of a layer, with what metrics ask about it, each computed once.

Chunks are why nothing here is ever an n x n array: every metric adds up what it needs from one
chunk after the other. Sizes below: `heads` query heads that share one KV head, `rows` query rows,
`keys` the keys from 0 up to the last one that any of the rows sees under the dense mask D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..layout import BlockLayout
from .subject import Subject

CELLS = 2**21  # of heads * rows * keys: a handful of such arrays, 8 MiB each in float32, are alive at a time
GPU_CELLS = (
    2**26
)  # 256 MiB each: a GPU is only busy with much work per call, and reads a mask of as many rows at a time
MAX_ROWS = 256  # beyond it, a causal chunk computes more of the upper triangle than it saves in calls
TINY = 1e-30  # a softmax over keys that hold less than this would lose digits to float32's smallest number


@dataclass(frozen=True, eq=False)
class Pairs:
    """What the pattern, inside D, allows a stretch of rows: written out when first asked for, as not every metric does.

    - layout, heads: whose pairs, each of the heads' own or one head's for all.
    - first, stop, keys: the rows, and how many keys from 0 on.
    """

    layout: BlockLayout
    heads: range
    first: int
    stop: int
    keys: int
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def placed(self) -> tuple[Tensor | None, Tensor]:
        """Columns and mask, as Chunk has them."""
        allowed = [self.layout.expand(head, self.first, self.stop)[:, : self.keys] for head in self.heads]
        columns, mask = _compact(allowed)
        placed = None if columns is None else torch.from_numpy(columns).to(self.device)
        return placed, torch.from_numpy(mask).to(self.device, self.dtype)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Query rows `first : stop` of the query heads `heads`; float32, or float64 where the capture is.

    - scores [heads, rows, keys]: scale * q.k, -inf outside D.
    - pairs: what the pattern allows.
    - v [keys, head_dim]: the values.
    """

    heads: slice
    first: int
    stop: int
    scores: Tensor
    pairs: Pairs
    v: Tensor

    @property
    def columns(self) -> Tensor | None:
        """The keys that any of the rows keeps, int64 [active]; None where those are most of the keys.

        `active` is then all of them. What is asked of the pattern alone is only computed there.
        """
        return self.pairs.placed[0]

    @property
    def mask(self) -> Tensor:
        """1 where the pattern, inside D, allows the pair, else 0, [heads or 1, rows, active]."""
        return self.pairs.placed[1]

    def active(self, x: Tensor) -> Tensor:
        """The active columns of [heads, rows, keys]."""
        return x if self.columns is None else x.index_select(-1, self.columns)

    def spread(self, x: Tensor) -> Tensor:
        """[heads, rows, active] back in its place, [heads, rows, keys], with 0 elsewhere."""
        if self.columns is None:
            return x
        return x.new_zeros(*x.shape[:-1], self.scores.shape[-1]).index_copy_(-1, self.columns, x)

    @cached_property
    def dense(self) -> Tensor:
        """Dense attention: softmax of the scores under D, [heads, rows, keys]."""
        return torch.softmax(self.scores, -1)

    @cached_property
    def kept(self) -> Tensor:
        """What of the dense attention lies on the pattern, [heads, rows, active], not renormalised."""
        return self.active(self.dense) * self.mask

    @cached_property
    def recall(self) -> Tensor:
        """Mass recall r of each row, [heads, rows]; 0 on an empty row.

        Never above 1, and exactly 1 where nothing is dropped, as both sums then run in one order. When the
        pattern grows it does not fall, but for the last digit of what is summed in another order.
        """
        return (self.kept.sum(-1) / self.dense.sum(-1)).clamp(max=1)

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
        return _mix(self._own_softmax[0], self.v if self.columns is None else self.v[self.columns])

    @cached_property
    def _own_softmax(self) -> tuple[Tensor, Tensor]:
        """Weights in proportion to the pattern's own softmax, and ln r."""
        faint = (self.kept.sum(-1) < TINY) & (self.mask.sum(-1) > 0)
        if not faint.any():
            return self.kept, self.recall.log()
        # Rows that keep only keys of hardly any dense probability: relative to their own LSE they are like others.
        scores = self.active(self.scores) + self.mask.log()
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
        cells = CELLS if q.device.type == "cpu" else GPU_CELLS
        rows = max(1, min(MAX_ROWS, cells // (share * layer.tokens)))
        above = torch.full((rows, rows), -torch.inf, dtype=dtype, device=q.device).triu(1)
        for first in range(0, layer.tokens, rows):
            stop = min(first + rows, layer.tokens)
            keys = stop if causal else layer.tokens
            made: dict[tuple[int, ...], Pairs] = {}  # heads with one pattern expand it once
            for kv_head in range(layer.kv_heads):
                heads = slice(kv_head * share, (kv_head + 1) * share)
                scores = q[heads, first:stop] @ k[kv_head, :keys].T
                if causal:
                    scores[..., first:] += above[: stop - first, : stop - first]
                groups = tuple(kept.head_group[heads].tolist())
                if groups not in made:
                    distinct = range(heads.start, heads.start + 1 if len(set(groups)) == 1 else heads.stop)
                    made[groups] = Pairs(kept, distinct, first, stop, keys, q.device, dtype)
                yield Chunk(heads, first, stop, scores, made[groups], v[kv_head, :keys])


def _compact(allowed: Sequence[NDArray[np.bool_]]) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_]]:
    """Masks of heads [rows, keys], stacked, with the columns that they have been cut to, if that is worth it."""
    columns = np.flatnonzero(np.logical_or.reduce([mask.any(0) for mask in allowed]))
    if 2 * len(columns) > allowed[0].shape[1]:
        return None, np.stack(allowed)
    return columns, np.stack([mask[:, columns] for mask in allowed])


def _mix(weights: Tensor, v: Tensor) -> Tensor:
    total = weights.sum(-1, keepdim=True)
    return weights @ v / torch.where(total > 0, total, 1)
