"""Whole tiles: what formats that know blocks only can hold, and how many pairs that adds.

Files with a tile mask share one shape: a header (with `fidelity` and, where the kernel has the flag, `causal`) and
arrays under the consumer's own names. They read back as the pattern that the consumer would compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import ragged
from ..errors import StudioError
from ..expr import Pattern
from ..layout import UNBOUNDED, BlockLayout, TileKind
from ..lowering import lower
from ..patterns.blocks import Blocks
from ..patterns.causal import Causal
from ..patterns.heads import Heads
from ..problem import Problem
from ._bundle import pack, unpack
from ._frame import EXACT, Fidelity, Request, Unsupported, Written, cover
from ._native import design, header

MAX_TILES = 2**28  # of one table over heads, query blocks and key blocks


def active(layout: BlockLayout) -> NDArray[np.bool_]:
    """Whether each tile is active, bool [heads, q_blocks, kv_blocks]."""
    tiles = layout.q_blocks * layout.kv_blocks * layout.problem.heads
    if tiles > MAX_TILES:
        raise Unsupported(f"it holds one entry for each tile of each head, here {tiles:,}: use a larger block")
    runs = layout.rows
    owner, rank = ragged(runs.length.astype(np.int64))
    table = np.zeros((layout.groups * layout.q_blocks, layout.kv_blocks), bool)
    table[runs.line[owner], runs.start[owner] + rank] = True
    return table.reshape(layout.groups, layout.q_blocks, layout.kv_blocks)[layout.head_group]


def covered(layout: BlockLayout) -> Fidelity:
    """The fidelity of taking every active tile as full."""
    return cover(layout.tile_pairs - layout.pairs)


def causal_or_covered(request: Request, layout: BlockLayout) -> tuple[Fidelity, bool]:
    """The better of two ways, every active tile as full or that under the causal flag, and whether the flag is set.

    The flag counts from the bottom right, as in FlashAttention: the last query sees the last key.
    """
    plain = covered(layout)
    problem = request.problem
    if plain == EXACT or problem.offset != problem.kv_len - problem.q_len:
        return plain, False
    inside = lower(request.pattern & Causal(), problem, block=request.block, layer=request.layer).pairs == layout.pairs
    return (cover(causal_tile_pairs(layout) - layout.pairs), True) if inside else (plain, False)


def causal_tile_pairs(layout: BlockLayout) -> int:
    """The pairs inside active tiles with the key not after the query, summed over heads."""
    rows = layout.rows
    triangle = replace(rows, kind=np.full_like(rows.kind, TileKind.BAND), ref=np.zeros_like(rows.ref))
    return replace(layout, rows=triangle, bands=np.array([[-UNBOUNDED, 0]])).pairs


def square(request: Request, name: str = "it") -> None:
    """Refuse problems whose queries are not the keys, and blocks that are not square or don't divide the length."""
    problem, (block_q, block_k) = request.problem, request.block
    if problem.q_len != problem.kv_len or problem.offset:
        raise Unsupported(
            f"{name} takes as many queries as keys, at the same positions, got q_len {problem.q_len}, kv_len "
            f"{problem.kv_len}, q_offset {problem.offset}"
        )
    if block_q != block_k or problem.q_len % block_q:
        raise Unsupported(
            f"{name} takes square blocks that divide the length {problem.q_len}, got {block_q} x {block_k}"
        )


def at_block(request: Request, block: tuple[int, int]) -> tuple[BlockLayout, tuple[str, ...]]:
    """The layout at the one block size that a kernel has, and a note where another was asked for."""
    layout = request.lowered(block)
    if block == request.block:
        return layout, ()
    asked = f"{request.block[0]} x {request.block[1]}"
    return layout, (f"lowered at {block[0]} x {block[1]}, not {asked}: the kernel has no other block size",)


def bundle(
    request: Request,
    target: str,
    layout: BlockLayout,
    fidelity: Fidelity,
    arrays: dict[str, NDArray[Any]],
    notes: tuple[str, ...] = (),
    **fields: Any,
) -> Written:
    """An .npz file with the consumer's arrays and a header."""
    stated = header(request, target) | {"block": list(layout.block), "fidelity": str(fidelity)} | fields
    return Written(pack(stated, arrays), fidelity, notes)


def read_tiles(source: bytes, target: str, name: str, dtype: str, batched: bool, causal: bool) -> Pattern:
    """The pattern that a file with one tile mask stands for: blocks by head, under causal where the file says so."""
    stated, parts = unpack(source)
    extra = ("fidelity", "causal") if causal else ("fidelity",)
    made = design(stated, target, extra)
    problem, block = made.problem, made.block
    shape = (problem.heads, -(-problem.q_len // block[0]), -(-problem.kv_len // block[1]))
    mask = parts.get(name, np.zeros(0))
    if mask.dtype != np.dtype(dtype) or mask.shape != ((1, *shape) if batched else shape) or (mask > 1).any():
        raise StudioError(
            f"expected {name} of {dtype}, 0 or 1, of shape {shape} for this problem and block; export again"
        )
    pattern = by_head(mask.reshape(shape).astype(bool), block)
    pattern = moved(pattern, problem)
    return pattern & Causal() if causal and stated["causal"] is True else pattern


def moved(pattern: Pattern, problem: Problem) -> Pattern:
    """A pattern of tiles, which count query rows, as one of positions."""
    return (pattern.T >> problem.offset).T if problem.offset else pattern


def by_head(mask: NDArray[np.bool_], block: tuple[int, int]) -> Pattern:
    """The tile mask, bool [heads, q_blocks, kv_blocks], as a pattern: one where all heads agree, else one for each."""
    each = [Blocks.from_mask(table, block) for table in mask]
    return each[0] if len(set(each)) == 1 else Heads(dict(enumerate(each)))
