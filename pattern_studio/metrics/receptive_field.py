"""The receptive field: which keys can reach a query through several layers of patterns, and how fast it grows.

Not to be confused with `pattern_studio.reach`, intervals along one dimension of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout, TileKind
from ..lowering import lower
from ..problem import Problem, whole
from .spectral_gap import MAX_LINES, spectral_gap

MAX_BLOCKS = 2**16  # 512 MiB of packed bits
WORDS = 2**22  # of the temporaries, 32 MiB


@dataclass(frozen=True)
class Depth:
    """After `layers` layers: reached pairs / pairs of the dense relation, and tokens that a query is reached by."""

    layers: int
    coverage: float
    mean_tokens: float
    min_tokens: int


@dataclass(frozen=True)
class ReceptiveField:
    """How the field grows with depth.

    - causal: whether every layer lies in the triangle, which is then the dense relation.
    - depths: layer by layer, from the first.
    - hops: layers until every query is reached by all that the dense relation shows it; None if not within these.
    - exact: whether tiles stand for all of their pairs; if not, all of this is an upper bound.
    - spectral_gap: of the graph of the first layer, where every layer has that one and it is symmetric; else None.
    """

    block: int
    causal: bool
    exact: bool
    depths: tuple[Depth, ...]
    hops: int | None
    spectral_gap: float | None

    def as_dict(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        return {**vars(self), "depths": [vars(depth) for depth in self.depths]}

    def to_markdown(self) -> str:
        """A table of the depths."""
        bound = "" if self.exact else " at most, as partial tiles count as whole"
        lines = [
            f"Receptive field through layers, {'causal' if self.causal else 'full'}, block {self.block}{bound}. "
            f"Hops to reach all: {self.hops or 'more'}. Spectral gap: "
            f"{'-' if self.spectral_gap is None else f'{self.spectral_gap:.4g}'}.",
            "",
            "| layers | coverage | mean tokens | min tokens |",
            "|---|---|---|---|",
        ]
        lines += [f"| {d.layers} | {d.coverage:.4g} | {d.mean_tokens:.4g} | {d.min_tokens} |" for d in self.depths]
        return "\n".join(lines) + "\n"


def receptive_field(
    patterns: Pattern | Sequence[Pattern],
    problem: Problem,
    *,
    layers: int | None = None,
    block: int = 1,
    residual: bool = True,
) -> ReceptiveField:
    """The exact composition of the layers' patterns, as bits: `B_L ... B_2 B_1` with `B_l = M_l or I`.

    M_l is what any head of layer l keeps; the identity is the residual path. Key j reaches query i where
    information can flow from j's input to i's output. Time follows key runs and blocks squared / 64.

    Args:
        patterns: one for all layers (it may use `layers()`), with `layers` many, or a list with one for each.
        problem: self-attention: q_len = kv_len without offset.
        layers: how many, for one pattern.
        block: tokens of a square block; 1 is exact for tokens, larger ones bound it from above unless their tiles
            are full. At most 65,536 blocks.
        residual: whether there is a residual path.

    Raises:
        StudioError: the problem is no self-attention, layers and patterns disagree, or too many blocks.

    Source: the theoretical receptive field (Luo et al., arXiv:1701.04128), as a product of boolean relations.

    >>> import pattern_studio as ps
    >>> field = receptive_field(ps.causal & ps.window(1, 0), ps.Problem(8), layers=7)
    >>> field.hops, [depth.coverage for depth in field.depths][:2], field.depths[1].mean_tokens
    (7, [0.4166666666666667, 0.5833333333333334], 2.625)
    """
    if problem.q_len != problem.kv_len or problem.offset or not problem.q_len:
        raise StudioError(
            f"expected self-attention over at least one token, got q_len {problem.q_len}, kv_len {problem.kv_len} and "
            f"q_offset {problem.offset}; layers can only be composed where queries and keys are the same tokens"
        )
    if isinstance(patterns, Pattern):
        each = [patterns] * whole("layers", 1 if layers is None else layers, 1, 4096)
    else:
        each = list(patterns)
        if not each or (layers is not None and layers != len(each)):
            raise StudioError(f"expected one pattern for each of {layers or 'the'} layers, got {len(each)}; list them")
    size = whole("block", block, 1, 65536)
    blocks = -(-problem.q_len // size)
    if blocks > MAX_BLOCKS:
        raise StudioError(f"expected at most {MAX_BLOCKS:,} blocks, got {blocks:,}; use a larger block than {size}")
    made: dict[tuple[Pattern, ...], BlockLayout] = {}
    layouts = []
    for number, pattern in enumerate(each):
        key = tuple(pattern.resolve(head, number) for head in range(problem.heads))
        made[key] = made.get(key) or lower(pattern, problem, block=size, layer=number)
        layouts.append(made[key])
    distinct = list(made.values())
    causal = all(bool((_stop(one) <= one.rows.line % blocks + 1).all()) for one in distinct)
    width = np.minimum(size, problem.q_len - np.arange(blocks) * size)  # tokens of each block
    field = _identity(blocks)
    depths: list[Depth] = []
    pairs = int(np.cumsum(width) @ width if causal else problem.q_len**2)
    for number, layout in enumerate(layouts, 1):
        field = _compose(layout, field, blocks, residual)
        tokens = _tokens(field, size, int(width[-1]))  # int64 [blocks]
        depths.append(
            Depth(number, float(tokens @ width / pairs), float(tokens @ width / problem.q_len), int(tokens.min()))
        )
    gap = spectral_gap(_dense(distinct[0])) if len(distinct) == 1 and blocks <= MAX_LINES else None
    return ReceptiveField(
        size,
        causal,
        all(_whole_tiles(one, residual) for one in distinct),
        tuple(depths),
        next((depth.layers for depth in depths if depth.coverage == 1), None),
        gap,
    )


def _stop(layout: BlockLayout) -> NDArray[np.int64]:
    return layout.rows.start.astype(np.int64) + layout.rows.length


def _identity(blocks: int) -> NDArray[np.uint64]:
    bits = np.zeros((blocks, -(-blocks // 64)), np.uint64)
    at = np.arange(blocks)
    bits[at, at // 64] = np.uint64(1) << (at % 64).astype(np.uint64)
    return bits


def _compose(layout: BlockLayout, field: NDArray[np.uint64], blocks: int, residual: bool) -> NDArray[np.uint64]:
    """Row I of the result: the rows of `field` that any head's active tiles of row I name, joined."""
    out = field.copy() if residual else np.zeros_like(field)
    line, first, stop = layout.rows.line % blocks, layout.rows.start.astype(np.int64), _stop(layout)
    level = np.frexp(stop - first)[1] - 1  # of the largest power of two within the run
    joined, step = field.copy(), 1  # row r joins rows r : r + step
    for power in range(int(level.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level == power)
        for part in np.array_split(chosen, len(chosen) * field.shape[1] // WORDS + 1):
            # Any run is two stretches of that length, which may overlap: joining twice changes nothing.
            rows = joined[first[part]] | joined[stop[part] - step]
            order = np.argsort(line[part], kind="stable")
            begins = np.flatnonzero(np.r_[True, np.diff(line[part][order]) > 0]) if len(part) else part
            if len(part):
                out[line[part][order][begins]] |= np.bitwise_or.reduceat(rows[order], begins)
        joined[:-step] |= joined[step:].copy()
        step *= 2
    return out


def _tokens(field: NDArray[np.uint64], size: int, last: int) -> NDArray[np.int64]:
    """Tokens in the blocks of each row, whose last block may be ragged."""
    blocks = len(field)
    ends = (field[:, (blocks - 1) // 64] >> np.uint64((blocks - 1) % 64)) & np.uint64(1)
    return np.bitwise_count(field).sum(1, dtype=np.int64) * size - ends.astype(np.int64) * (size - last)


def _dense(layout: BlockLayout) -> NDArray[np.bool_]:
    """Active tiles of any head, bool [blocks, blocks]."""
    heads = np.unique(layout.head_group, return_index=True)[1].tolist()
    return np.any([layout.tile_kinds(head) > 0 for head in heads], axis=0)


def _whole_tiles(layout: BlockLayout, residual: bool) -> bool:
    if layout.block == (1, 1):
        return True
    own = layout.rows.line % layout.q_blocks
    held = np.zeros(layout.q_blocks, bool)
    held[own[(layout.rows.start <= own) & (own < _stop(layout))]] = True
    return bool((layout.rows.kind == TileKind.FULL).all() and (held.all() or not residual))
