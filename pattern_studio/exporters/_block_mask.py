"""to_block_mask: a layout as torch's BlockMask, without going through source text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..columns import ragged
from ..errors import StudioError
from ..layout import BlockLayout
from ._flex_tiles import FULL, PARTIAL, RULE, code_table, codes, fits

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

MAX_TILES = 2**28  # of one table over all heads' tiles; torch makes several of that size


def to_block_mask(layout: BlockLayout, device: torch.device | str = "cpu") -> BlockMask:
    """The layout as a BlockMask for `torch.nn.attention.flex_attention`, for any batch size.

    The mask has as many heads as the problem where heads differ, else one for all. Pairs are decided by look-up
    (bands by arithmetic, other partial tiles by their bit mask), so nothing of q_len x kv_len is ever made. Query row
    `r` stands at `r + q_offset`. Tables: int32 [heads, q_blocks, kv_blocks] on `device`.

    Raises:
        StudioError: a block side that FlexAttention can't take, a problem without queries or keys, too many tiles.

    Source: BlockMask.from_kv_blocks of torch 2.13.

    >>> import pattern_studio as ps
    >>> mask = to_block_mask(ps.lower(ps.causal, q_len=512, block=128))
    >>> mask.kv_num_blocks.tolist(), mask.full_kv_num_blocks.tolist()
    ([[[1, 1, 1, 1]]], [[[0, 1, 2, 3]]])
    """
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    _check(layout)
    block_q, block_k = layout.block
    table = _dense(layout)
    shared = layout.groups == 1
    offered = np.zeros(1, np.int64) if shared else layout.head_group
    lists = [_listed(tiles[offered]) for tiles in (table >= PARTIAL, table == FULL)]
    tensors = [torch.from_numpy(part)[None].to(device) for pair in lists for part in pair]

    code = torch.from_numpy(table).to(device)
    group = torch.from_numpy(layout.head_group).to(device)
    lo, hi, place = (torch.from_numpy(part).to(device) for part in code_table(layout))
    every = np.ones((1, block_q, block_k), bool)
    masks = torch.from_numpy(np.concatenate([every, layout.masks])).to(device)

    def code_of(h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        return code[0 if shared else group[h], q_idx // block_q, kv_idx // block_k]

    def bands(b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        tile, distance = code_of(h, q_idx, kv_idx), kv_idx - q_idx
        return (lo[tile] <= distance) & (distance <= hi[tile])

    def bands_and_bits(b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        tile = code_of(h, q_idx, kv_idx)
        return bands(b, h, q_idx, kv_idx) & masks[place[tile], q_idx % block_q, kv_idx % block_k]

    return BlockMask.from_kv_blocks(
        *tensors,
        BLOCK_SIZE=layout.block,
        mask_mod=bands_and_bits if len(layout.bits) else bands,
        seq_lengths=(layout.problem.q_len, layout.problem.kv_len),
    )


def _check(layout: BlockLayout) -> None:
    problem = layout.problem
    if not problem.q_len or not problem.kv_len:
        raise StudioError(
            f"FlexAttention takes at least one query and one key, got q_len {problem.q_len} and kv_len {problem.kv_len}"
        )
    for name, size, length in zip(("block_q", "block_k"), layout.block, (problem.q_len, problem.kv_len), strict=True):
        if not fits(size, length):
            raise StudioError(
                f"FlexAttention takes {RULE} {length}, got {name} {size}; lower the pattern again, with block=128"
            )
    tiles = layout.q_blocks * layout.kv_blocks * problem.heads
    if tiles > MAX_TILES:
        raise StudioError(
            f"a BlockMask lists every tile of every head, here {tiles:,}, and at most {MAX_TILES:,} are made; "
            "lower the pattern with a larger block"
        )


def _listed(tiles: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number and indices of the tiles of each row, the row's other tiles behind them, as torch orders its own."""
    return tiles.sum(-1, dtype=np.int32), np.argsort(~tiles, axis=-1, kind="stable").astype(np.int32)


def _dense(layout: BlockLayout) -> NDArray[Any]:
    """The code of every tile, int32 [groups, q_blocks, kv_blocks]."""
    runs = codes(layout)
    owner, rank = ragged(runs.length.astype(np.int64))
    table = np.zeros((layout.groups * layout.q_blocks, layout.kv_blocks), np.int32)
    table[runs.line[owner], runs.start[owner] + rank] = runs.ref[owner]
    return table.reshape(layout.groups, layout.q_blocks, layout.kv_blocks)
