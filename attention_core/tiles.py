"""BlockLayout -> TileLists: units, tiles and the work table of the fused kernels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout, Runs, TileKind

from .kernels.triton.lists import TileLists

EDGE = 2**30  # beyond any j - i of the lengths served; a position minus it still fits int32
MAX_UNITS = 2**31 - 1
MASKED_COST = 1.25  # of a masked tile against a full one, measured on H100
CTAS = 264  # programs in flight on a large GPU (132 multiprocessors, two each): a lever for balance, not a limit
SHORTEST_PART = 8  # tiles; splitting a line finer costs more in merging than it gains
# Lines of queries are split above so many times what a program has of one head, too: the portable forward works head
# after head, so that the last one's longest line is its end (skewed rows 1.37 to 1.03 ms, H200; Hopper the same).
OF_A_HEAD = 4


def query_lists(layout: BlockLayout) -> TileLists:
    """Lists of key tiles for each query block: forward and dQ."""
    return _lists(layout, layout.rows, layout.block[0], layout.block[1], layout.q_blocks, layout.problem.kv_len, False)


def key_lists(layout: BlockLayout) -> TileLists:
    """Lists of query tiles for each key block: dK and dV."""
    return _lists(
        layout, layout.columns, layout.block[1], layout.block[0], layout.kv_blocks, layout.problem.q_len, True
    )


def _lists(
    layout: BlockLayout, runs: Runs, line_size: int, unit_block: int, lines: int, length: int, by_key: bool
) -> TileLists:
    if max(layout.problem.q_len, layout.problem.kv_len) > EDGE:
        raise StudioError(
            f"the fused kernels serve lengths up to {EDGE:,}, got q_len {layout.problem.q_len:,} and kv_len "
            f"{layout.problem.kv_len:,}; use backend='blocked'"
        )
    granule = min(unit_block & -unit_block, 128)
    total_lines = layout.groups * lines
    positions = runs.length.astype(np.int64) * unit_block
    tile = 128 if granule == 128 or positions.sum() > 1024 * max(total_lines, 1) else 64
    tile, per_tile = max(tile, granule), max(tile, granule) // granule

    # Runs -> units. What reaches past the end of the sequence is masked, what lies past it is dropped.
    first = runs.start.astype(np.int64) * unit_block
    count = -(-np.minimum(positions, length - first) // granule)
    if int(count.sum()) > MAX_UNITS:
        raise StudioError(
            f"this layout has {int(count.sum()):,} runs of {granule} keys, more than the {MAX_UNITS:,} that the fused "
            "kernels index; use a larger block_k"
        )
    owner = np.repeat(np.arange(len(first)), count)
    unit = first[owner] + (np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)) * granule
    line, kind, ref = runs.line[owner], runs.kind[owner], runs.ref[owner]
    full = (kind == TileKind.FULL) & (unit + granule <= length)
    # Full units fill whole tiles; the few left over at a line's end join its masked tiles.
    rank = _rank(line, full)
    per_line = np.bincount(line[full], minlength=total_lines)
    full &= rank < (per_line // per_tile * per_tile)[line]
    rest = ~full
    low, high = np.full(len(line), -EDGE), np.full(len(line), EDGE)
    band = kind == TileKind.BAND
    # A band is given on positions; j - (i - offset) = j - row has the same bounds moved by the offset.
    low[band], high[band] = np.clip(layout.bands[ref[band]] + layout.problem.offset, -EDGE, EDGE).T
    bits = np.where(kind == TileKind.BITS, ref, -1)

    full_tiles = np.bincount(line[full], minlength=total_lines) // per_tile
    masked_units = np.bincount(line[rest], minlength=total_lines)
    masked_tiles = -(-masked_units // per_tile)
    masked_ptr = np.r_[0, np.cumsum(masked_tiles)]
    place = masked_ptr[line[rest]] * per_tile + _rank(line[rest], np.ones(int(rest.sum()), bool))
    padded = int(masked_ptr[-1]) * per_tile

    def spread(values: NDArray, fill: int) -> torch.Tensor:
        out = np.full(padded, fill, np.int32)
        out[place] = values[rest]
        return torch.from_numpy(out)

    cost = full_tiles + MASKED_COST * masked_tiles
    jobs, splits, slots = _work_table(cost.reshape(layout.groups, lines), layout.problem.heads, by_key)
    return TileLists(
        numbers=torch.tensor([line_size, lines, granule, tile, *layout.block, slots, int((bits[rest] >= 0).any())]),
        full_ptr=torch.from_numpy(np.r_[0, np.cumsum(full_tiles)].astype(np.int32)),
        full_units=torch.from_numpy(unit[full].astype(np.int32)),
        masked_ptr=torch.from_numpy(masked_ptr.astype(np.int32)),
        masked_units=spread(unit, 0),
        low=spread(low, 1),
        high=spread(high, 0),
        bits=spread(bits, -1),
        masks=torch.from_numpy(key_major(layout)),
        head_group=torch.from_numpy(layout.head_group.copy()),
        jobs=torch.from_numpy(jobs),
        splits=torch.from_numpy(splits),
    )


def _rank(line: NDArray, chosen: NDArray) -> NDArray[np.int64]:
    """How many chosen units of the same line come before each unit; lines are in order."""
    before = np.cumsum(chosen) - chosen
    start = np.searchsorted(line, np.arange(int(line.max(initial=-1)) + 1))
    return before - before[start][line] if len(line) else before


def _work_table(cost: NDArray, heads: int, by_key: bool) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Jobs of each group with most work first; lines above the mean load of a program are split."""
    groups, lines = cost.shape
    of_a_head = cost.sum() / max(groups, 1) / CTAS
    limit = max(SHORTEST_PART, of_a_head * heads)
    if not by_key:
        limit = min(limit, max(2 * SHORTEST_PART, of_a_head * OF_A_HEAD))
    parts = np.maximum(np.ceil(cost / limit).astype(np.int64), 1)
    job_rows, split_rows = [], []
    for group in range(groups):
        many = np.flatnonzero(parts[group] > 1)
        first_slot = np.full(lines, -1)
        first_slot[many] = np.cumsum(parts[group][many]) - parts[group][many]
        line = np.repeat(np.arange(lines), parts[group])
        part = np.arange(len(line)) - np.repeat(np.cumsum(parts[group]) - parts[group], parts[group])
        share = cost[group][line] / parts[group][line]
        slot = np.where(first_slot[line] >= 0, first_slot[line] + part, -1)
        order = np.argsort(-share, kind="stable")  # equal shares stay in order: neighbours share keys in cache
        job_rows.append(np.stack([line, part, parts[group][line], slot], 1)[order])
        split_rows.append(np.stack([many, first_slot[many], parts[group][many]], 1))
    slots = int(max((r[:, 2].sum() for r in split_rows), default=0))
    return _stacked(job_rows, 4), _stacked(split_rows, 3), slots


def _stacked(rows: list[NDArray], width: int) -> NDArray[np.int32]:
    longest = max(map(len, rows), default=0)
    out = np.full((len(rows), longest, width), -1, np.int32)
    for n, part in enumerate(rows):
        out[n, : len(part)] = part
    return out


def key_major(layout: BlockLayout) -> NDArray[np.uint8]:
    """The layout's bit masks with keys outermost, uint8 [masks, block_k, ceil(block_q / 8)]."""
    block_q, block_k = layout.block
    out = np.empty((len(layout.bits), block_k, -(-block_q // 8)), np.uint8)
    step = max(1, 2**24 // (block_q * block_k))  # bounds the unpacked copy to 16 MiB, or one mask
    for at in range(0, len(out), step):
        part = np.unpackbits(layout.bits[at : at + step], axis=1, count=block_q * block_k, bitorder="little")
        by_key = part.reshape(-1, block_q, block_k).transpose(0, 2, 1)
        out[at : at + step] = np.packbits(by_key, axis=2, bitorder="little")
    return out
