"""Exact lowering in time proportional to the key runs that come out, never to pairs or keys.

1. Each query block is a strip; the pattern says which key columns are ALL, BAND, SOME or NONE there.
2. Column runs become tile runs (tiles.py). Only tiles that several column runs share need a look: they
   are FULL, one band, or SOME.
3. SOME tiles are settled exactly, once for each distinct signature (settle.py).

Query blocks are taken in batches, so that the working arrays stay far smaller than the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, MAX_RUNS, SOME, Ints, Scope, Strips, too_many_runs
from ..distinct import distinct_rows
from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout, Runs, TileKind
from ..order import order_of
from ..problem import Problem, block_shape
from .settle import settle
from .tiles import tile_runs

MAX_LINES = 2**24  # query blocks of one layout
SAMPLE = 64  # query blocks that tell how many can be taken at a time
BATCH_RUNS = 2**20  # column runs of one batch
HOPELESS = 16  # times the runs that are built


def lower(
    pattern: Pattern,
    problem: Problem | None = None,
    *,
    q_len: int | None = None,
    kv_len: int | None = None,
    q_offset: int | None = None,
    heads: int = 1,
    docs: tuple[int, ...] | None = None,
    block: int | tuple[int, int] = 128,
    layer: int | None = None,
) -> BlockLayout:
    """Lower a pattern exactly for a problem and a block size, to key runs per query block.

    Give a Problem, or its fields: `q_len`, and where they differ from the defaults `kv_len`,
    `q_offset`, `heads`, `docs`. `block` is one number or `(block_q, block_k)` in tokens; `layer` is
    needed by patterns that differ by layer. Heads with equal patterns share their rows.

    Raises StudioError where the problem and the pattern do not fit, or the result would be too large.

    >>> import pattern_studio as ps
    >>> layout = lower(ps.parse("causal & window(255, 0)"), q_len=1024, block=128)
    >>> layout.tiles(), layout.tiles(TileKind.FULL), layout.pairs
    (21, 7, 229504)
    """
    if not isinstance(pattern, Pattern):
        raise StudioError(f"lower() takes a Pattern, got {type(pattern).__name__}; read text with parse()")
    if problem is None:
        if q_len is None:
            raise StudioError("lower() needs q_len, the number of query rows, or a Problem")
        problem = Problem(q_len, q_len if kv_len is None else kv_len, q_offset, heads, docs)
    shape = block_shape(block)
    if -(-problem.q_len // shape[0]) > MAX_LINES:
        raise StudioError(
            f"q_len {problem.q_len:,} at block_q {shape[0]} makes more than the {MAX_LINES:,} query blocks that are "
            "kept; use a larger block_q"
        )
    resolved = [pattern.resolve(head, layer) for head in range(problem.heads)]
    distinct = list(dict.fromkeys(resolved))
    head_group = np.array([distinct.index(p) for p in resolved], np.int32)
    parts = [part for group, p in enumerate(distinct) for part in _lowered(p, group, problem, shape)]
    rows, bands, bits = _merged(parts, len(distinct) * -(-problem.q_len // shape[0]))
    return BlockLayout(problem, shape, head_group, rows, bands, bits, pattern.hash)


@dataclass(frozen=True)
class _Part:
    """Tile runs of one batch, sorted by (line, start); a ref leads into the part's own tables."""

    line: NDArray[np.int32]
    start: NDArray[np.int32]
    stop: NDArray[np.int32]
    kind: NDArray[np.uint8]
    ref: NDArray[np.int32]
    bands: Ints
    bits: NDArray[np.uint8]


def _lowered(pattern: Pattern, group: int, problem: Problem, block: tuple[int, int]) -> list[_Part]:
    """One head group, batch by batch."""
    block_q, block_k = block
    first = np.arange(0, problem.q_len, block_q)
    last = np.minimum(first + block_q, problem.q_len) - 1
    strips = Strips(
        first + problem.offset, last + problem.offset, np.zeros_like(first), np.full_like(first, problem.kv_len)
    )
    scope = Scope(problem.kv_len, problem.doc_ends, block)
    parts: list[_Part] = []
    begin, size, total = 0, _batch(pattern, scope, strips), 0
    while begin < len(strips) or not parts:
        batch = strips.take(slice(begin, begin + size))
        columns = pattern.columns(batch, scope)
        runs = tile_runs(columns, batch, problem.kv_len, block_k)
        del columns  # the largest of the working arrays
        some = runs.state == SOME
        line, start, kind, mask, bits = settle(pattern, scope, runs.take(some), batch, block)
        rest = runs.take(~some)
        bands = np.stack([rest.lo, rest.hi], 1)
        one, which = distinct_rows(bands.view(np.uint8))
        bands = bands[one]
        full = rest.state == ALL
        fields = (
            np.concatenate([rest.strip, line]),
            np.concatenate([rest.start, start]),
            np.concatenate([rest.stop, start + 1]),
            np.concatenate([np.where(full, TileKind.FULL, TileKind.BAND).astype(np.uint8), kind]),
            np.concatenate([np.where(full, 0, which), mask]),
        )
        order = order_of(fields[0] * (problem.kv_len + 1) + fields[1])
        line, start, stop, kind, ref = (field[order] for field in fields)
        line += group * len(strips) + begin
        line_of, start, stop, ref = (field.astype(np.int32) for field in (line, start, stop, ref))
        parts.append(_Part(line_of, start, stop, kind, ref, bands, bits))
        begin += size
        total += len(line)
        if total > MAX_RUNS:
            raise too_many_runs(total)
    return parts


def _batch(pattern: Pattern, scope: Scope, strips: Strips) -> int:
    """How many query blocks to take at a time, so that they have about BATCH_RUNS column runs."""
    if len(strips) <= SAMPLE:
        return SAMPLE
    sample = strips.take(np.linspace(0, len(strips) - 1, SAMPLE).astype(int))
    runs = max(len(pattern.columns(sample, scope)), 1)
    # What is hopeless is refused at once; a sample cannot tell a near miss, so that is seen on the way.
    if runs * len(strips) // SAMPLE > HOPELESS * MAX_RUNS:
        raise too_many_runs(runs * len(strips) // SAMPLE)
    return max(BATCH_RUNS * SAMPLE // runs, 1)


def _merged(parts: list[_Part], lines: int) -> tuple[Runs, Ints, NDArray[np.uint8]]:
    """All parts in one CSR, with shared tables of the bands and masks that are used."""
    line, start, stop, kind = (
        np.concatenate([getattr(p, f) for p in parts]) for f in ("line", "start", "stop", "kind")
    )
    ref = np.zeros(len(line), np.int32)
    tables = []
    for of, table in ((TileKind.BAND, "bands"), (TileKind.BITS, "bits")):
        chosen = kind == of
        base = np.cumsum([0, *(len(getattr(p, table)) for p in parts)])
        own = np.concatenate([p.ref[p.kind == of] + base[n] for n, p in enumerate(parts)])
        rows = np.concatenate([getattr(p, table) for p in parts])
        used = np.zeros(len(rows), bool)
        used[own] = True
        number = np.cumsum(used) - 1
        rows = rows[used]
        example, which = distinct_rows(rows.view(np.uint8))
        ref[chosen] = which[number[own]]
        tables.append(rows[example])
    return Runs.from_sorted(lines, line, start, stop, kind, ref), tables[0], tables[1]
