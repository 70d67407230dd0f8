"""Tiling: which tiles of a problem hold an allowed pair, on the device of q and k and without asking it anything."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import StudioError
from ..problem import Problem, block_shape


@dataclass(frozen=True)
class Tiling:
    """Tiles of a problem: `q_len` queries at `q_offset` and after, `kv_len` keys, in blocks of `block` tokens.

    A tile is *visible* where it holds a pair that the model's own dense mask allows: any pair, or under
    `causal` one with `j <= i`. Where a batch is padded on the right, `lengths` (int64 [batch], positions
    from which an item is padding) makes visibility an item's own.

    Raises StudioError for lengths or blocks that no problem has.

    >>> tiling = Tiling(q_len=5, kv_len=5, block=2)
    >>> tiling.visible(torch.device("cpu"))[0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """

    q_len: int
    kv_len: int
    block: tuple[int, int]
    q_offset: int | None = field(default=None)
    causal: bool = field(default=True)

    def __post_init__(self) -> None:
        problem = Problem(self.q_len, self.kv_len, self.q_offset)
        object.__setattr__(self, "block", block_shape(self.block))
        object.__setattr__(self, "q_offset", problem.offset)
        if not isinstance(self.causal, bool):
            raise StudioError(f"causal must be True or False, got {self.causal!r}")

    @classmethod
    def of(
        cls, q: Tensor, k: Tensor, block: int | tuple[int, int], q_offset: int | None = None, causal: bool = True
    ) -> Tiling:
        """The tiling of q [batch, heads, q_len, head_dim] and k [batch, kv_heads, kv_len, head_dim], both checked."""
        check_qk(q, k)
        return cls(q.shape[2], k.shape[2], block_shape(block), q_offset, causal)

    @property
    def offset(self) -> int:
        """Position of query row 0."""
        assert self.q_offset is not None  # set in __post_init__
        return self.q_offset

    @property
    def q_blocks(self) -> int:
        """Query blocks, the last one possibly ragged."""
        return -(-self.q_len // self.block[0])

    @property
    def kv_blocks(self) -> int:
        """Key blocks, the last one possibly ragged."""
        return -(-self.kv_len // self.block[1])

    def rows(self, device: torch.device, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """First and last position of each query block, int64 [1 or batch, q_blocks]; last < first in padding."""
        first = torch.arange(self.q_blocks, device=device)[None] * self.block[0] + self.offset
        last = (first + self.block[0] - 1).clamp(max=self.offset + self.q_len - 1)
        return first, last if lengths is None else torch.minimum(last, lengths[:, None] - 1)

    def visible(self, device: torch.device, lengths: Tensor | None = None) -> Tensor:
        """Tiles that hold a pair of the dense mask, bool [1 or batch, q_blocks, kv_blocks]."""
        first, last = self.rows(device, lengths)
        key = torch.arange(self.kv_blocks, device=device) * self.block[1]
        there = (first <= last)[..., None] & (key <= last[..., None] if self.causal else key >= 0)
        return there if lengths is None else there & (key < lengths[:, None, None])

    def diagonal(self, device: torch.device, lengths: Tensor | None = None) -> Tensor:
        """Visible tiles that hold a query's own position, bool as `visible`."""
        first, last = self.rows(device, lengths)
        key = torch.arange(self.kv_blocks, device=device) * self.block[1]
        own = (key <= last[..., None]) & (key + self.block[1] > first[..., None])
        return own & self.visible(device, lengths)

    def sinks(self, device: torch.device, tokens: int, lengths: Tensor | None = None) -> Tensor:
        """Visible tiles that hold one of the first `tokens` keys, bool as `visible`."""
        key = torch.arange(self.kv_blocks, device=device) * self.block[1]
        return (key < tokens) & self.visible(device, lengths)

    def counts(self, sinks: int, diagonal: bool) -> tuple[int, int]:
        """Visible tiles, and those of them that hold one of the first `sinks` keys or, if asked, lie on the diagonal.

        >>> Tiling(q_len=8, kv_len=8, block=2).counts(sinks=1, diagonal=True)
        (10, 7)
        """
        first, last = self.rows(torch.device("cpu"))
        end = torch.full_like(last, self.kv_blocks)
        visible = torch.minimum(last // self.block[1] + 1, end).clamp(min=0) if self.causal else end
        ahead = torch.minimum(visible, torch.full_like(end, -(-sinks // self.block[1])))
        own = torch.minimum(last // self.block[1] + 1, visible) - torch.maximum(first // self.block[1], ahead)
        return int(visible.sum()), int(ahead.sum() + (own.clamp(min=0).sum() if diagonal else 0))


def check_qk(q: Tensor, k: Tensor) -> None:
    """StudioError unless q and k are those of one attention call."""
    for name, x in (("q", q), ("k", k)):
        if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_floating_point():
            got = f"{list(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise StudioError(f"expected {name} to be floating [batch, heads, tokens, head_dim], got {got}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.device != k.device:
        raise StudioError(
            f"expected q and k of one batch, head_dim and device, got {list(q.shape)} on {q.device} and "
            f"{list(k.shape)} on {k.device}; pass those of one attention call"
        )
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise StudioError(
            f"expected the KV heads to divide the query heads, got {k.shape[1]} KV heads for {q.shape[1]}; "
            "query head h reads KV head h // (heads // kv_heads)"
        )


def check_lengths(lengths: Tensor | None, q: Tensor) -> None:
    """StudioError unless `lengths` is None or whole numbers [batch] on q's device."""
    if lengths is None:
        return
    if not isinstance(lengths, Tensor) or lengths.dtype != torch.int64 or lengths.shape != q.shape[:1]:
        got = f"{list(lengths.shape)} {lengths.dtype}" if isinstance(lengths, Tensor) else type(lengths).__name__
        raise StudioError(f"expected lengths as int64 [{q.shape[0]}], one per batch item, got {got}")
    if lengths.device != q.device:
        raise StudioError(f"expected lengths on {q.device}, where q is, got {lengths.device}; move them there")
