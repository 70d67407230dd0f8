"""The benchmark grid: named problems and the patterns that fill them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

import pattern_studio as ps
from pattern_studio.layout import TileKind

TEXT_LIMIT = 400  # characters: a drawn mask is thousands, and its hash tells it apart as well


@dataclass(frozen=True)
class Case:
    """One cell: shape, block and pattern; `density` is the active tiles' share of all tiles."""

    name: str
    length: int
    heads: int
    kv_heads: int
    dim: int
    block: tuple[int, int]
    pattern: ps.Pattern
    batch: int = 1
    docs: tuple[int, ...] | None = None
    arms: tuple[str, ...] = ()  # those that run it, where the others would build tables of all tiles

    def layout(self) -> ps.BlockLayout:
        """The lowered pattern."""
        return ps.lower(self.pattern, q_len=self.length, heads=self.heads, docs=self.docs, block=self.block)

    def identity(self) -> dict[str, object]:
        """What a row keeps so that the same pattern is found again: its hash, its canonical text where that is short.

        >>> Case("w", 64, 1, 1, 64, (16, 16), ps.causal & ps.window(3, 0)).identity()["text"]
        'causal & window(3, 0)'
        """
        text = str(self.pattern)
        found: dict[str, object] = {"hash": self.pattern.hash}
        if len(text) < TEXT_LIMIT:
            found["text"] = text
        if self.docs is not None:
            found["docs"] = list(self.docs)
        return found


def tile_counts(layout: ps.BlockLayout) -> dict[str, int]:
    """Active tiles of each kind over all heads: what a row keeps so that times can be told apart by them.

    >>> tile_counts(ps.lower(ps.causal, q_len=256, heads=2, block=128))
    {'full': 2, 'band': 4, 'bits': 0}
    """
    return {kind.name.lower(): layout.tiles(kind) for kind in (TileKind.FULL, TileKind.BAND, TileKind.BITS)}


@cache
def random(density: float, length: int, heads: int, unit_q: int, unit_k: int) -> ps.Pattern:
    """A different random draw of key units for each block of queries and each head."""
    rng = np.random.default_rng(7)
    rows, columns = length // unit_q, length // unit_k
    kept = max(1, round(density * columns))
    cases = {}
    for head in range(heads):
        mask = np.zeros((rows, columns), bool)
        np.put_along_axis(mask, np.argpartition(rng.random((rows, columns)), kept - 1, 1)[:, :kept], True, 1)
        cases[head] = ps.blocks.from_mask(mask, (unit_q, unit_k))
    return ps.heads(cases)


@cache
def skewed(density: float, length: int, heads: int, block: int, even: bool = False) -> ps.Pattern:
    """Random tiles, another draw for each head; rows get shares like 1 / rank, or with `even` equal ones of as many."""
    rng = np.random.default_rng(13)
    tiles = length // block
    shares = 1 / np.arange(1, tiles + 1)
    counts = np.clip(np.round(shares / shares.sum() * density * tiles**2), 1, tiles).astype(int)
    if even:
        whole, over = divmod(int(counts.sum()), tiles)
        counts = np.full(tiles, whole) + (np.arange(tiles) < over)
    cases = {}
    for head in range(heads):
        rank = np.argsort(np.argsort(rng.random((tiles, tiles)), 1), 1)
        cases[head] = ps.blocks.from_mask(rank < rng.permutation(counts)[:, None], block)
    return ps.heads(cases)


def local(density: float, length: int, block: int) -> ps.Pattern:
    """A band of whole tiles."""
    tiles = length // block
    half = max(1, round(density * tiles / 2))
    row, column = np.indices((tiles, tiles))
    return ps.blocks.from_mask(abs(row - column) <= half, block)


def global_local(density: float, length: int, block: int) -> ps.Pattern:
    """Whole rows and columns of tiles and a band: half of the budget each."""
    tiles = length // block
    count, half = max(1, round(density * tiles / 4)), max(1, round(density * tiles / 4))
    row, column = np.indices((tiles, tiles))
    return ps.blocks.from_mask((abs(row - column) <= half) | (row < count) | (column < count), block)


@cache
def columns_and_window(density: float, length: int, heads: int) -> ps.Pattern:
    """Vertical-slash in miniature: single key columns, another set for each head, and a window."""
    rng = np.random.default_rng(11)
    kept = round(density * length / 2)
    return ps.heads(
        {
            head: ps.globals(cols=tuple(np.sort(rng.choice(length, kept, False)).tolist()))
            | ps.window(kept // 2, kept // 2)
            for head in range(heads)
        }
    )


def grid(quick: bool = False) -> list[Case]:
    """Every cell of the grid, or a few for a quick look."""
    cells: list[Case] = []

    def add(
        name: str, length: int, dim: int, pattern: ps.Pattern, *, heads=16, kv_heads=None, block=(128, 128), docs=None,
        arms=(),
    ):  # fmt: skip
        cells.append(Case(name, length, heads, kv_heads or heads, dim, block, pattern, 1, docs, arms))

    for dim in (128, 64):
        for length in (8192, 32768):
            for density in (0.10, 0.05, 0.02):
                add(f"random_{density:.2f}", length, dim, random(density, length, 16, 128, 128))
            add("local_0.05", length, dim, local(0.05, length, 128))
            add("global_local_0.05", length, dim, global_local(0.05, length, 128))
        if quick:
            continue
        add("causal_window_1023", 32768, dim, ps.causal & ps.window(1023, 0))
        add("causal_window_1023_as_full", 32768, dim, as_full(ps.causal & ps.window(1023, 0), 32768))
        add("random_0.10", 32768, dim, random(0.10, 32768, 16, 128, 8), block=(128, 8))
        add("random_0.10", 32768, dim, random(0.10, 32768, 16, 128, 1), block=(128, 1))
        add("columns_window_0.10", 32768, dim, columns_and_window(0.10, 32768, 16), block=(128, 1))
        add("skewed_0.05", 32768, dim, skewed(0.05, 32768, 16, 128))
        add("skewed_0.05_as_even", 32768, dim, skewed(0.05, 32768, 16, 128, even=True))
        if dim == 64:
            window = ps.causal & ps.window(4095, 0)
            add("causal_window_4095", 1048576, dim, window, heads=8, arms=("ours", "hopper"))
        add("causal", 32768, dim, ps.causal)
        add("documents", 32768, dim, ps.causal & ps.docs, docs=(4096, 1000, 8192, 3000, 16480))
        add("random_0.10", 32768, dim, random(0.10, 32768, 16, 64, 64), block=(64, 64))
        add("random_0.10_gqa8", 32768, dim, random(0.10, 32768, 16, 128, 128), kv_heads=2)
        add("random_0.05", 131072, dim, random(0.05, 131072, 16, 128, 128))
        add("local_0.05", 131072, dim, local(0.05, 131072, 128))
    return cells


def as_full(pattern: ps.Pattern, length: int, block: int = 128) -> ps.Pattern:
    """The pattern's active tiles, every one taken as full."""
    layout = ps.lower(pattern, q_len=length, block=block)
    return ps.blocks.from_mask(layout.tile_kinds() > 0, block)
