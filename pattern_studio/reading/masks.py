"""The three ways in: token masks, block masks, and FlexAttention's mask_mod."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import Scope
from ..errors import StudioError
from ..expr import Pattern
from ..layout import TileKind, affordable
from ..lowering import lower
from ..patterns import PRIMITIVES
from ..problem import Problem, block_shape
from .cells import STEP, Cells
from .fit import Fit, fit
from .listed import listed

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """A mask as a pattern that shows it exactly on `problem`, lowered again and compared.

    `problem` has the mask's lengths, offset and heads, and the documents that the pattern needs where
    it says `docs`. `named` is False where a head had to be listed block by block; such a pattern says
    nothing about other lengths.
    """

    pattern: Pattern
    problem: Problem
    named: bool


def read_mask(mask: object, q_offset: int | None = None) -> Reading:
    """Read a token mask, bool (or 0 and 1) [q_len, kv_len] or [heads, q_len, kv_len]; True is allowed.

    Query row `r` stands at position `r + q_offset`, by default aligned at the bottom right. Takes numpy
    arrays, torch tensors and nested lists. Raises StudioError for anything else, and before building a
    list of blocks that is too long to keep.

    >>> import numpy as np
    >>> i, j = np.indices((64, 64))
    >>> str(read_mask((j <= i) & ((i - j < 16) | (j < 2))).pattern)
    'causal & (window(15, 0) | sink(2))'
    """
    masks = _masks(mask, "a token mask", "q_len, kv_len")
    heads, q_len, kv_len = masks.shape
    return _read(iter(masks), Problem(q_len, kv_len, q_offset, heads), (1, 1))


def read_block_mask(
    mask: object,
    block: int | tuple[int, int],
    *,
    q_len: int | None = None,
    kv_len: int | None = None,
    q_offset: int | None = None,
) -> Reading:
    """Read a block mask, bool (or 0 and 1) [q_blocks, kv_blocks] or with heads in front; a set block is full.

    `q_len` and `kv_len` are given where the last block is ragged. A causal block mask holds its whole
    diagonal blocks, future tokens included: `causal & reading.pattern` is what was probably meant.

    Source: the layouts of DeepSpeed's and Triton's block-sparse attention.

    >>> str(read_block_mask([[1, 0, 0], [1, 1, 0], [0, 1, 1]], 64).pattern)
    '(causal | chunk(64)) & ~((causal | chunk(64)) >> -128)'
    """
    masks, (block_q, block_k) = _masks(mask, "a block mask", "q_blocks, kv_blocks"), block_shape(block)
    heads, rows, keys = masks.shape
    tokens = rows * block_q if q_len is None else q_len, keys * block_k if kv_len is None else kv_len
    problem = Problem(*tokens, q_offset, heads)
    made = -(-problem.q_len // block_q), -(-problem.kv_len // block_k)
    if made != (rows, keys):
        raise StudioError(
            f"q_len {problem.q_len} and kv_len {problem.kv_len} make {made[0]} x {made[1]} blocks of {block_q} x "
            f"{block_k}, but the mask has {rows} x {keys}; correct the lengths or the block"
        )
    return _read(iter(masks), problem, (block_q, block_k))


def read_mask_mod(mask_mod: Callable[..., Any], problem: Problem) -> Reading:
    """Read a FlexAttention `mask_mod(batch, head, q_idx, kv_idx)`, evaluated on index tensors, batch 0.

    `q_idx` counts rows from 0, as FlexAttention does, so `q_idx >= kv_idx` is `causal` only where
    `problem.q_offset` is 0. Raises StudioError where it fails, or gives anything but booleans.

    Source: torch.nn.attention.flex_attention.

    >>> str(read_mask_mod(lambda b, h, q, k: (q >= k) & (q - k <= 8), Problem(64)).pattern)
    'causal & window(8, 0)'
    """
    if not callable(mask_mod):
        raise StudioError(f"read_mask_mod() takes a function of (batch, head, q_idx, kv_idx), got {mask_mod!r}")
    affordable(problem.q_len * problem.kv_len, "token mask")
    return _read((_evaluated(mask_mod, head, problem) for head in range(problem.heads)), problem, (1, 1))


def _masks(mask: object, what: str, shape: str) -> Bools:
    """The mask as bool [heads, rows, keys]."""
    if hasattr(mask, "detach"):
        mask = mask.detach().cpu().numpy()  # type: ignore[attr-defined]
    table = np.asarray(mask)
    if table.ndim == 4 and table.shape[0] == 1:
        table = table[0]
    if table.ndim not in (2, 3) or 0 in table.shape[:-2]:
        raise StudioError(f"{what} has the shape [{shape}] or [heads, {shape}], got {list(table.shape)}; take one item")
    if table.dtype != bool and not (table.dtype.kind in "iu" and bool(((table == 0) | (table == 1)).all())):
        raise StudioError(
            f"{what} holds True for what is allowed and False for the rest (or 1 and 0), got {table.dtype} values; "
            "an additive mask is read as mask == 0"
        )
    return (table if table.ndim == 3 else table[None]).astype(bool)


def _evaluated(mask_mod: Callable[..., Any], head: int, problem: Problem) -> Bools:
    import torch

    out = np.zeros((problem.q_len, problem.kv_len), bool)
    key = torch.arange(problem.kv_len)[None, :]
    step = max(1, STEP // max(problem.kv_len, 1))
    for low in range(0, problem.q_len, step):
        row = torch.arange(low, min(low + step, problem.q_len))[:, None]
        try:
            says = mask_mod(torch.tensor(0), torch.tensor(head), row, key)
        except Exception as error:
            raise StudioError(
                f"mask_mod failed on q_idx {list(row.shape)} and kv_idx {list(key.shape)} ({error}); it must work on "
                "index tensors that broadcast, as under FlexAttention's vmap"
            ) from error
        if not isinstance(says, torch.Tensor) or says.dtype != torch.bool:
            got = says.dtype if isinstance(says, torch.Tensor) else type(says).__name__
            raise StudioError(f"mask_mod must return booleans (a mask, not a score), got {got}")
        out[low : low + step] = says.cpu().numpy()
    return out


def _read(masks: Iterator[Bools], problem: Problem, cell: tuple[int, int]) -> Reading:
    """One pattern for all heads; heads with equal masks are read once."""
    known: dict[bytes, tuple[Pattern, bool]] = {}
    patterns: list[tuple[Pattern, bool]] = []
    for mask in masks:
        digest = sha256(np.packbits(mask).tobytes()).digest()
        if digest not in known:
            found = _named(mask, problem, cell)
            if found is not None and found.doc_ends is not None:
                lengths = tuple(np.diff(np.r_[0, found.doc_ends]).tolist())
                # One problem has one set of documents: a head with others is listed.
                found = found if problem.docs in (None, lengths) else None
                problem = problem if found is None else replace(problem, docs=lengths)
            pattern = listed(mask, cell, problem.offset) if found is None else found.pattern
            _verify(pattern, mask, replace(problem, heads=1), cell)
            known[digest] = pattern, found is not None
        patterns.append(known[digest])
    return Reading(_by_head([p for p, _ in patterns]), problem, all(named for _, named in patterns))


def _named(mask: Bools, problem: Problem, cell: tuple[int, int]) -> Fit | None:
    if mask.all():
        return Fit(PRIMITIVES["dense"])
    if not mask.any():
        return Fit(PRIMITIVES["empty"])
    scope = Scope(problem.kv_len, None, cell)
    if cell[0] == cell[1] and problem.offset % cell[0] == 0:
        return fit(Cells(mask, problem.offset // cell[0], cell[0], scope))
    return None


def _by_head(patterns: list[Pattern]) -> Pattern:
    """`heads({...})` over stretches of heads with equal patterns, or the one pattern of all."""
    if len(set(patterns)) == 1:
        return patterns[0]
    starts = [n for n, p in enumerate(patterns) if n == 0 or p != patterns[n - 1]]
    stops = [*starts[1:], len(patterns)]
    return PRIMITIVES["heads"]({range(a, b): patterns[a] for a, b in zip(starts, stops, strict=True)})


def _verify(pattern: Pattern, mask: Bools, problem: Problem, cell: tuple[int, int]) -> None:
    """Lower the pattern and compare it with the mask it was read from, cell by cell."""
    if cell != (1, 1):
        kinds = lower(pattern, problem, block=cell).tile_kinds()
        same = np.array_equal(kinds == TileKind.FULL, mask) and np.array_equal(kinds != TileKind.EMPTY, mask)
    else:
        layout = lower(pattern, problem, block=64)
        step = max(64, STEP // max(problem.kv_len, 1) // 64 * 64)
        same = all(
            np.array_equal(layout.expand(0, low, min(low + step, problem.q_len)), mask[low : low + step])
            for low in range(0, problem.q_len, step)
        )
    assert same, f"{pattern} does not show the mask that it was read from"
