"""Problem: the lengths, offset, heads and documents that a pattern is lowered for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from numbers import Integral

from .errors import StudioError

MAX_LENGTH = 2**31 - 1  # positions and tile indices are kept as int32 in layouts and on devices


def whole(name: str, value: object, low: int, high: int = MAX_LENGTH) -> int:
    """Return `value` as an int in [low, high], or raise a StudioError that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise StudioError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
    if not low <= int(value) <= high:
        raise StudioError(f"{name} must lie between {low} and {high}, got {int(value)}")
    return int(value)


def block_shape(block: object) -> tuple[int, int]:
    """Return a block size as `(block_q, block_k)` tokens; one number means a square block."""
    pair = block if isinstance(block, Sequence) and not isinstance(block, str) else (block, block)
    if len(pair) != 2:
        raise StudioError(f"block must be one number or (block_q, block_k), got {block!r}")
    return whole("block_q", pair[0], 1, 65536), whole("block_k", pair[1], 1, 65536)


@dataclass(frozen=True)
class Problem:
    """What a pattern is lowered for: `q_len` query rows, `kv_len` keys, `heads` query heads.

    Query row `r` stands at the absolute position `r + q_offset`. By default
    `q_offset = kv_len - q_len`: bottom-right aligned, as in cached decoding. `docs` holds the
    lengths of the documents packed one after another, zero lengths allowed; they must add up to
    `kv_len`.

    >>> Problem(q_len=2, kv_len=5).q_offset
    3
    """

    q_len: int
    kv_len: int = field(default=-1)
    q_offset: int | None = None
    heads: int = 1
    docs: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        q_len = whole("q_len", self.q_len, 0)
        kv_len = q_len if isinstance(self.kv_len, int) and self.kv_len == -1 else whole("kv_len", self.kv_len, 0)
        offset = kv_len - q_len if self.q_offset is None else whole("q_offset", self.q_offset, -MAX_LENGTH)
        object.__setattr__(self, "q_len", q_len)
        object.__setattr__(self, "kv_len", kv_len)
        object.__setattr__(self, "q_offset", offset)
        object.__setattr__(self, "heads", whole("heads", self.heads, 1, 65536))
        if self.docs is not None:
            docs = tuple(whole("a document length", n, 0) for n in self.docs)
            if sum(docs) != kv_len:
                raise StudioError(
                    f"document lengths must add up to kv_len {kv_len}, got a sum of {sum(docs)} over {len(docs)} "
                    "documents; add a last document for padding or correct kv_len"
                )
            object.__setattr__(self, "docs", docs)

    @property
    def offset(self) -> int:
        """Absolute position of query row 0, in tokens."""
        assert self.q_offset is not None  # set in __post_init__
        return self.q_offset

    @property
    def doc_ends(self) -> tuple[int, ...] | None:
        """Exclusive end position of each document, or None without documents."""
        return None if self.docs is None else tuple(accumulate(self.docs))
