"""Conditions: what a call adds to its pattern, as hashable values: padding, documents, token masks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pattern_studio.errors import StudioError


@dataclass(frozen=True)
class TokenMask:
    """Allowed pairs of one batch item, bool [heads or 1, q_len, kv_len]; equal where the contents are."""

    digest: str
    table: NDArray[np.bool_] = field(compare=False, repr=False)

    @classmethod
    def of(cls, table: NDArray[np.bool_]) -> TokenMask:
        packed = np.packbits(table).tobytes()
        return cls(hashlib.sha256(repr(table.shape).encode() + packed).hexdigest(), table)


@dataclass(frozen=True)
class Item:
    """One batch item: the ranges of keys that exist (None: all), document lengths, and a token mask."""

    keys: tuple[tuple[int, int], ...] | None = None
    docs: tuple[int, ...] | None = None
    mask: TokenMask | None = None


def document_table(docs: Sequence[int] | Sequence[Sequence[int]] | Tensor | None) -> Tensor | None:
    """Document lengths as int64 [1 or batch, documents] on the host, rows filled up with empty documents."""
    if docs is None:
        return None
    if isinstance(docs, Tensor):
        table = docs.reshape(1, -1) if docs.ndim == 1 else docs
        if table.ndim != 2 or table.is_floating_point() or table.is_complex():
            raise StudioError(
                "docs takes document lengths as whole numbers, [documents] or [batch, documents], "
                f"got {docs.dtype} of shape {list(docs.shape)}"
            )
        return table.to("cpu", torch.int64)
    rows: list[list[int]] = [list(row) if isinstance(row, Sequence) else [row] for row in docs]
    if not any(isinstance(row, Sequence) for row in docs):
        rows = [[length for row in rows for length in row]]
    longest = max((len(row) for row in rows), default=0)
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.int64).reshape(len(rows), -1)


def check_conditions(
    batch: int, heads: int, q_len: int, kv_len: int, padding: Tensor | None, docs: Tensor | None, allowed: Tensor | None
) -> None:
    """Raise unless the shapes and dtypes fit the inputs; looks at no values."""
    if padding is not None:
        if padding.dtype != torch.bool:
            raise StudioError(
                f"key_padding_mask must be bool, True where a key is padding, got {padding.dtype}; "
                "compare it first, such as `mask == 0`"
            )
        if tuple(padding.shape) != (batch, kv_len):
            raise StudioError(
                f"key_padding_mask must have the shape [batch, kv_len] = {[batch, kv_len]}, got {list(padding.shape)}"
            )
    if docs is not None and docs.shape[0] not in (1, batch):
        raise StudioError(f"docs must be one list of lengths or one for each of {batch} items, got {docs.shape[0]}")
    if allowed is not None:
        wanted = (batch, heads, q_len, kv_len)
        if allowed.dtype != torch.bool:
            raise StudioError(f"allowed must be bool, True where a pair may be used, got {allowed.dtype}")
        if allowed.ndim != 4 or any(a not in (1, b) for a, b in zip(allowed.shape[:2], wanted[:2], strict=False)):
            raise StudioError(
                f"allowed must have the shape [batch or 1, heads or 1, q_len, kv_len] = {list(wanted)}, "
                f"got {list(allowed.shape)}"
            )
        if tuple(allowed.shape[2:]) != wanted[2:]:
            raise StudioError(
                f"allowed must be for q_len {q_len} and kv_len {kv_len}, got {list(allowed.shape[2:])}; "
                "make the mask for this call's lengths"
            )


def read_items(
    batch: int, padding: Tensor | None, docs: Tensor | None, allowed: Tensor | None, *, may_name: bool
) -> tuple[tuple[Item, ...], bool]:
    """The items, one where all are alike; and whether `allowed` was the causal mask, if it may be named.

    Reads the masks' values, so on a GPU it waits for them.
    """
    causal = may_name and allowed is not None and is_causal_table(allowed)
    allowed = None if causal else allowed
    if padding is None and allowed is None and (docs is None or len(docs) == 1):
        return (Item(docs=None if docs is None else tuple(docs[0].tolist())),), causal
    ranges = [None] * batch if padding is None else key_ranges(~padding)
    lengths = [None] * batch if docs is None else [tuple(row) for row in docs.expand(batch, -1).tolist()]
    masks: list[TokenMask | None] = [None] * batch
    if allowed is not None:
        tables = [TokenMask.of(table) for table in allowed.cpu().numpy()]
        masks = [tables[n % len(tables)] for n in range(batch)]
    items = tuple(Item(*fields) for fields in zip(ranges, lengths, masks, strict=True))
    return (items if len(set(items)) > 1 else items[:1] or (Item(),)), causal


def is_causal_table(allowed: Tensor) -> bool:
    """A mask that decoders pass at every call: named, it costs tiles instead of a table of pairs."""
    batch, heads, q_len, kv_len = allowed.shape
    if batch != 1 or heads != 1 or q_len != kv_len or not q_len:
        return False
    return torch.equal(allowed[0, 0], torch.ones_like(allowed[0, 0]).tril_())


def key_ranges(real: Tensor) -> list[tuple[tuple[int, int], ...] | None]:
    """Ranges of the keys that exist, of each item, from bool [batch, kv_len]; None where all do."""
    found: list[tuple[tuple[int, int], ...] | None] = []
    for row in real.cpu().numpy():
        edges = np.flatnonzero(np.diff(np.r_[False, row, False].astype(np.int8)))
        spans = tuple((int(a), int(b)) for a, b in edges.reshape(-1, 2))
        found.append(None if spans == ((0, len(row)),) else spans)
    return found
