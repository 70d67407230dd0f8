"""flash_attention_4: the block lists of FlashAttention-4, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..expr import Pattern
from ._bundle import unpack
from ._frame import Request, Target, Unsupported, Written, need_tokens
from ._native import design
from ._stretches import int32, listed
from ._tiles import active, bundle, by_head, covered, moved

BLOCK = 128


def write(request: Request) -> Written:
    """Counts int32 [1, heads, M] and indices int32 [1, heads, M, N] of the full blocks by query block, and transposed.

    Names as in `BlockSparseTensorsTorch(mask_block_cnt, mask_block_idx, full_block_cnt, full_block_idx, block_size)`,
    to be put on CUDA; those of the backward, lists of query blocks for every key block, begin with `bwd_`. Masked
    blocks would need a mask_mod in CuTe DSL, which is not written: partial tiles are listed as full, a cover. Blocks
    are multiples of 128 that divide the lengths.

    Source: flash_attn/cute/block_sparsity.py of flash-attn-4 4.0.0b36.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check
    >>> str(check(ps.chunk(256), ps.Problem(512), 128, to="flash_attention_4"))
    'exact'
    """
    need_tokens(request.problem)
    problem = request.problem
    for size, length in zip(request.block, (problem.q_len, problem.kv_len), strict=True):
        if size % BLOCK or length % size:
            raise Unsupported(
                f"it takes blocks of a multiple of 128 that divides the length {length}, got {size}: "
                "ragged blocks would need a mask_mod in CuTe DSL"
            )
    layout = request.layout
    tiles = active(layout)
    arrays: dict[str, NDArray[Any]] = {"block_size": np.array(layout.block, np.int32)}
    for prefix, table in (("", tiles), ("bwd_", tiles.swapaxes(1, 2))):
        count, index = _lists(table)
        none, unused = _lists(np.zeros_like(table))
        arrays |= {f"{prefix}mask_block_cnt": none, f"{prefix}mask_block_idx": unused}
        arrays |= {f"{prefix}full_block_cnt": count, f"{prefix}full_block_idx": index}
    return bundle(request, "flash_attention_4", layout, covered(layout), arrays)


def read(source: bytes) -> Pattern:
    """The full blocks as a `blocks` pattern, one for each head where heads differ; masked blocks are not read."""
    stated, parts = unpack(source)
    made = design(stated, "flash_attention_4", ("fidelity",))
    problem, block = made.problem, made.block
    sides = -(-problem.q_len // block[0]), -(-problem.kv_len // block[1])
    tables = []
    for prefix, (rows, columns) in (("", sides), ("bwd_", sides[::-1])):
        shape = (1, problem.heads, rows)
        if int32(parts, f"{prefix}mask_block_cnt", shape).any():
            raise StudioError("expected no masked blocks: their mask_mod is not in the file")
        counts = int32(parts, f"{prefix}full_block_cnt", shape).reshape(-1)
        index = int32(parts, f"{prefix}full_block_idx", (*shape, columns)).reshape(-1, columns)
        line, tile = listed(counts, index, f"{prefix}full_block_idx")
        if (tile < 0).any() or (tile >= columns).any():
            raise StudioError(f"expected blocks 0 to {columns - 1} in {prefix}full_block_idx; export it again")
        table = np.zeros((problem.heads * rows, columns), bool)
        table[line, tile] = True
        tables.append(table.reshape(problem.heads, rows, columns))
    if (tables[0] != tables[1].swapaxes(1, 2)).any():
        raise StudioError("expected the lists of the backward to be the transpose of the forward's; export it again")
    return moved(by_head(tables[0], block), problem)


def _lists(tiles: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number and indices of the blocks of each row, the others behind them."""
    return tiles.sum(-1, dtype=np.int32)[None], np.argsort(~tiles, axis=-1, kind="stable").astype(np.int32)[None]


TARGET = Target(
    name="flash_attention_4",
    about="the block lists of FlashAttention-4, with those of its backward",
    consumer="flash-attn-4 4.0.0b36, BlockSparseTensorsTorch",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="gpu",
    read=read,
    head_dims=range(
        8, 129, 8
    ),  # of both sm90 (which goes up to 256) and sm100: _validate_head_dims of cute/interface.py
)
