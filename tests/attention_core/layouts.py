"""Layouts out of dense masks, tile by tile: a path to BlockLayout that shares nothing with lowering."""

from __future__ import annotations

import numpy as np

from pattern_studio.layout import BlockLayout, Runs, TileKind
from pattern_studio.problem import Problem


def from_mask(
    mask: np.ndarray,
    block: tuple[int, int],
    q_offset: int | None = None,
    bands: tuple[tuple[int, int], ...] = (),
) -> BlockLayout:
    """The exact layout of a bool mask [heads, q_len, kv_len]; heads with equal masks share a group.

    A PARTIAL tile that equals one of `bands`, (lo, hi) on absolute j - i, becomes a BAND tile, any
    other a BITS tile.
    """
    heads, q_len, kv_len = mask.shape
    problem = Problem(q_len, kv_len, q_offset, heads)
    block_q, block_k = block
    q_blocks, kv_blocks = -(-q_len // block_q), -(-kv_len // block_k)
    unique: list[int] = []
    head_group = np.zeros(heads, np.int32)
    for h in range(heads):
        same = [g for g, u in enumerate(unique) if np.array_equal(mask[u], mask[h])]
        head_group[h] = same[0] if same else len(unique)
        unique += [] if same else [h]

    i = np.arange(q_len)[:, None] + problem.offset
    distance = np.arange(kv_len) - i
    runs: list[tuple[int, int, int, int, int]] = []
    table: list[bytes] = []
    for g, h in enumerate(unique):
        for a in range(q_blocks):
            for b in range(kv_blocks):
                tile = np.s_[a * block_q : (a + 1) * block_q, b * block_k : (b + 1) * block_k]
                seen = mask[h][tile]
                if not seen.any():
                    continue
                fits = [n for n, (lo, hi) in enumerate(bands) if _equals(seen, distance[tile], lo, hi)]
                if seen.all():
                    kind, ref = TileKind.FULL, 0
                elif fits:
                    kind, ref = TileKind.BAND, fits[0]
                else:
                    padded = np.zeros(block, bool)
                    padded[: seen.shape[0], : seen.shape[1]] = seen
                    packed = np.packbits(padded.ravel(), bitorder="little").tobytes()
                    table += [] if packed in table else [packed]
                    kind, ref = TileKind.BITS, table.index(packed)
                runs.append((g * q_blocks + a, b, b + 1, kind, ref))
    columns = np.array(runs, np.int64).reshape(-1, 5).T
    width = -(-block_q * block_k // 8)
    bits = np.frombuffer(b"".join(table), np.uint8).reshape(-1, width)
    rows = Runs.from_sorted(len(unique) * q_blocks, *columns)
    return BlockLayout(problem, block, head_group, rows, np.array(bands, np.int64).reshape(-1, 2), bits)


def _equals(seen: np.ndarray, distance: np.ndarray, lo: int, hi: int) -> bool:
    return np.array_equal(seen, (distance >= lo) & (distance <= hi))


def causal(q_len: int, kv_len: int, left: int = 2**31) -> np.ndarray:
    """Bottom-right aligned causal mask, bool [1, q_len, kv_len], over at most `left` keys and oneself."""
    distance = np.arange(kv_len) - (np.arange(q_len)[:, None] + kv_len - q_len)
    return ((distance <= 0) & (distance >= -left))[None]
