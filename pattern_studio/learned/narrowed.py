"""Narrowed: what padding and attention masks leave of a batch's pairs, for scores and choices that obey them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import StudioError
from .tiling import Tiling


@dataclass(frozen=True, eq=False)
class Narrowed:
    """Keys, query rows and pairs that take part, on the device of q and k; None where there is nothing to say.

    keys: bool [1 or batch, kv_len]; rows: bool [1 or batch, q_len]; True takes part, the rest is padding.
    pairs: bool [1 or batch, 1 or heads, q_len, kv_len], True may attend.
    docs: int64 [1 or batch, kv_len], each position's document, of which a query sees its own alone. It is read a
    block of queries at a time, never as a table of pairs.

    Raises StudioError for another dtype or number of dimensions.

    >>> given = Narrowed(keys=torch.tensor([[False, True, True, True]]))  # one key of padding on the left
    >>> given.visible(Tiling(q_len=4, kv_len=4, block=(2, 1)))[0, 0].int().tolist()
    [[0, 1, 0, 0], [0, 1, 1, 1]]
    """

    keys: Tensor | None = None
    rows: Tensor | None = None
    pairs: Tensor | None = None
    docs: Tensor | None = None

    def __post_init__(self) -> None:
        for name, dims in (("keys", 2), ("rows", 2), ("pairs", 4)):
            table = getattr(self, name)
            if table is not None and (table.dtype != torch.bool or table.ndim != dims):
                raise StudioError(
                    f"{name} must be bool with {dims} dimensions, True takes part, got {table.dtype} "
                    f"{list(table.shape)}"
                )
        if self.docs is not None and (self.docs.dtype != torch.int64 or self.docs.ndim != 2):
            raise StudioError(
                f"docs must be int64 with 2 dimensions, a document for each position, got {self.docs.dtype} "
                f"{list(self.docs.shape)}; document_of(lengths) makes it of lengths"
            )

    @classmethod
    def of_lengths(cls, lengths: Tensor | None, tiling: Tiling) -> Narrowed:
        """Items that are padded on the right: positions from `lengths` (int64 [batch]) on are padding."""
        if lengths is None:
            return cls()
        key = torch.arange(tiling.kv_len, device=lengths.device)
        row = torch.arange(tiling.q_len, device=lengths.device) + tiling.offset
        return cls(key < lengths[:, None], row < lengths[:, None])

    def visible(self, tiling: Tiling, device: torch.device | None = None) -> Tensor:
        """Tiles that hold a pair that takes part, bool [1 or batch, 1 or heads, q_blocks, kv_blocks]."""
        if self.docs is not None:
            tall = tiling.block[0]
            parts = [
                _any(self.allowed(tiling, self.docs.device, first, min(first + tall, tiling.q_len)), tiling.block)
                for first in range(0, tiling.q_len, tall)
            ]
            return torch.cat(parts, 2)
        if self.pairs is not None:
            return _any(self.allowed(tiling, self.pairs.device), tiling.block)
        given = self.keys if self.keys is not None else self.rows
        device = given.device if given is not None else device or torch.device("cpu")
        if self.keys is None and self.rows is None:
            return tiling.visible(device)[:, None]
        keys = torch.ones(1, tiling.kv_len, dtype=torch.bool, device=device) if self.keys is None else self.keys
        key = torch.where(keys, torch.arange(tiling.kv_len, device=device), _FAR)
        first = pad(key, (0, -tiling.kv_len % tiling.block[1]), value=_FAR).unflatten(
            -1, (tiling.kv_blocks, tiling.block[1])
        )
        first, last = first.amin(-1)[:, None, None, :], self.last_rows(tiling, device)[:, None, :, None]
        there = (first < _FAR) & (last > -_FAR)
        return there & (first <= last) if tiling.causal else there

    def last_rows(self, tiling: Tiling, device: torch.device) -> Tensor:
        """Position of each query block's last row that takes part, int64 [1 or batch, q_blocks]; very low if none."""
        row = torch.arange(tiling.q_len, device=device)[None] + tiling.offset
        row = row if self.rows is None else torch.where(self.rows, row, -_FAR)
        padded = pad(row, (0, -tiling.q_len % tiling.block[0]), value=-_FAR)
        return padded.unflatten(-1, (tiling.q_blocks, tiling.block[0])).amax(-1)

    def height(self, tiling: Tiling, device: torch.device) -> Tensor:
        """Rows of each query block that take part, int64 [1 or batch, q_blocks]."""
        rows = torch.ones(1, tiling.q_len, dtype=torch.bool, device=device) if self.rows is None else self.rows
        return pad(rows, (0, -tiling.q_len % tiling.block[0])).unflatten(-1, (tiling.q_blocks, tiling.block[0])).sum(-1)

    def sinks(self, tiling: Tiling, tokens: int, device: torch.device) -> Tensor:
        """Tiles of the first `tokens` real keys of each item or document, bool [1 or batch, 1, 1, kv_blocks]."""
        keys = torch.ones(1, tiling.kv_len, dtype=torch.bool, device=device) if self.keys is None else self.keys
        count = keys.cumsum(-1)
        if self.docs is not None:  # counted anew from each document's first position on
            count = count - torch.where(self.starts(), count - keys.long(), 0).cummax(-1).values
        first = keys & (count <= tokens)
        return _any(first[:, None, None], (1, tiling.block[1]))

    def starts(self) -> Tensor:
        """Whether a document begins at a position, bool [1 or batch, kv_len]; `docs` must be given."""
        assert self.docs is not None
        return torch.cat([torch.ones_like(self.docs[:, :1], dtype=torch.bool), self.docs.diff(dim=1) != 0], 1)

    def allowed(self, tiling: Tiling, device: torch.device, first: int = 0, stop: int | None = None) -> Tensor:
        """Pairs of query rows `first` to `stop` that take part, bool [1 or batch, 1 or heads, rows, kv_len]."""
        stop = tiling.q_len if stop is None else stop
        row = torch.arange(first, stop, device=device)[:, None] + tiling.offset
        key = torch.arange(tiling.kv_len, device=device)
        table = (key <= row if tiling.causal else (key >= 0) & (row == row))[None, None]
        if self.keys is not None:
            table = table & self.keys[:, None, None]
        if self.rows is not None:
            table = table & self.rows[:, None, first:stop, None]
        if self.docs is not None:
            own = self.docs[:, first + tiling.offset : stop + tiling.offset]
            table = table & (own[:, None, :, None] == self.docs[:, None, None])
        return table if self.pairs is None else table & self.pairs[:, :, first:stop]


def document_of(lengths: Tensor) -> Tensor:
    """Each position's document, int64 [items, tokens], from lengths int64 [items, documents] of one sum.

    Raises StudioError where a length is below 0 or the items' sums differ.

    >>> document_of(torch.tensor([[2, 0, 1], [1, 2, 0]])).tolist()
    [[0, 0, 2], [0, 1, 1]]
    """
    sums = lengths.sum(1)
    if (lengths < 0).any() or (sums != sums[:1]).any():
        raise StudioError(f"document lengths must be at least 0 and of one sum for all items, got {lengths.tolist()}")
    number = torch.arange(lengths.shape[1], device=lengths.device)
    return torch.stack([torch.repeat_interleave(number, each) for each in lengths])


_FAR = 2**40  # beyond any position


def _any(table: Tensor, block: tuple[int, int]) -> Tensor:
    """Whether a tile of [..., rows, keys] holds a True."""
    rows, keys = table.shape[-2:]
    table = pad(table, (0, -keys % block[1], 0, -rows % block[0]))
    shape = table.shape[-2] // block[0], table.shape[-1] // block[1]
    return table.unflatten(-1, (shape[1], block[1])).any(-1).unflatten(-2, (shape[0], block[0])).any(-2)
