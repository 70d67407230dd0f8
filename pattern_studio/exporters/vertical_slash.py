"""vertical_slash: blocks and single columns per query block, for the vertical-slash kernels of MInference and vLLM."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..layout import BlockLayout
from ..lowering import lower
from ..patterns.causal import Causal
from ._bundle import unpack
from ._frame import Request, Target, Unsupported, Written, cover, need_tokens
from ._native import design
from ._stretches import by_rows, int32, listed, token_layout
from ._tiles import bundle

BLOCK = 64  # queries of a block, and keys of a listed block
MAX_ENTRIES = 2**28  # of the padded column table


def write(request: Request) -> Written:
    """`block_count` [1, heads, ceil(n / 64)], `block_offset` [.., blocks], and the like of columns, all int32.

    Each query block of 64 sees the listed stretches of 64 keys (offsets in tokens, cut at the diagonal by the kernel)
    and the listed single keys (not cut: all of them lie before the query block). So every causal pattern whose query
    blocks agree on their keys is exact; elsewhere keys that a part of the block sees are given to all of it, a cover.
    Queries are the keys, and every row needs a key: the kernel divides by the sum of an empty one.

    Source: minference/ops/pit_sparse_flash_attention_v2.py of MInference at 78bb77b; the same four tables are those of
    vLLM's sparse_attn_func.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check
    >>> pattern = ps.parse("causal & (rect(0:192, 0:192) | sink(4) | globals(cols=(70, 90)))")
    >>> str(check(pattern, ps.Problem(192), to="vertical_slash"))
    'exact'
    """
    need_tokens(request.problem)
    problem = request.problem
    if problem.q_len != problem.kv_len or problem.offset:
        raise Unsupported("it is for prefilling: as many queries as keys, at the same positions")
    layout = request.lowered((BLOCK, 1))
    causal = lower(request.pattern & Causal(), problem, block=request.block, layer=request.layer)
    if causal.pairs != layout.pairs:
        raise Unsupported("it is causal, and this pattern sees keys after the query: add `causal &`")
    if layout.empty_rows:
        raise Unsupported(f"every query needs a key, and {layout.empty_rows:,} have none")
    rows, length = layout.q_blocks, problem.q_len
    blocks: list[NDArray[np.int64]] = []
    columns: list[NDArray[np.int64]] = []
    pairs = np.zeros(layout.groups, np.int64)
    for line in range(layout.groups * rows):
        first = line % rows * BLOCK
        height = min(BLOCK, length - first)
        span = slice(*layout.rows.indptr[line : line + 2])
        start = layout.rows.start[span].astype(np.int64)
        stop = start + layout.rows.length[span]
        offsets, singles = _cut(start[start < first], np.minimum(stop, first)[start < first])
        pairs[line // rows] += height * (BLOCK * len(offsets) + len(singles))
        if (stop > first).any():  # keys of the query block itself: its own block, cut at the diagonal
            offsets = np.r_[offsets, first]
            pairs[line // rows] += height * (height + 1) // 2
        blocks.append(offsets)
        columns.append(singles)
    shape = (layout.groups, rows)
    tables = {}
    for name, lists in (("block", blocks), ("column", columns)):
        count, index = _padded(lists, shape)
        tables[f"{name}_count"] = count[layout.head_group][None]
        tables["block_offset" if name == "block" else "column_index"] = index[layout.head_group][None]
    added = int(pairs[layout.head_group].sum()) - layout.pairs
    return bundle(request, "vertical_slash", layout, cover(added), tables)


def read(source: bytes) -> BlockLayout:
    """What the kernel computes of the tables, as a layout of single tokens: blocks cut at the diagonal, and columns."""
    stated, parts = unpack(source)
    problem = design(stated, "vertical_slash", ("fidelity",)).problem
    if problem.q_len != problem.kv_len or problem.offset:
        raise StudioError("expected as many queries as keys, at the same positions; export it again")
    heads, blocks = problem.heads, -(-problem.q_len // BLOCK)
    line, start, stop = [], [], []
    for count, table, size in (("block_count", "block_offset", BLOCK), ("column_count", "column_index", 1)):
        counts = int32(parts, count, (1, heads, blocks)).reshape(-1)
        index = int32(parts, table, (1, heads, blocks, None)).reshape(heads * blocks, -1)
        place, first = listed(counts, index, table)
        top = place % blocks * BLOCK
        piece, row = by_rows(top, np.minimum(BLOCK, problem.q_len - top))
        seen = np.minimum(first[piece] + size, row + 1) if size > 1 else first[piece] + 1
        keep = first[piece] < seen
        line.append((place[piece] // blocks * problem.q_len + row)[keep])
        start.append(first[piece][keep])
        stop.append(seen[keep])
    groups = np.arange(heads, dtype=np.int32)
    return token_layout(problem, groups, np.concatenate(line), np.concatenate(start), np.concatenate(stop))


def _cut(start: NDArray[np.int64], stop: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Stretches of keys as blocks of 64 and what is left over as single keys; neighbouring stretches are one."""
    if not len(start):
        return start, start
    begins = np.r_[True, start[1:] != stop[:-1]]
    start, stop = start[begins], stop[np.r_[np.flatnonzero(begins)[1:] - 1, len(stop) - 1]]
    whole = (stop - start) // BLOCK
    offsets = np.concatenate([s + BLOCK * np.arange(n) for s, n in zip(start, whole, strict=True)])
    singles = np.concatenate([np.arange(s + BLOCK * n, e) for s, e, n in zip(start, stop, whole, strict=True)])
    return offsets, singles


def _padded(lists: list[NDArray[np.int64]], shape: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Counts and a table padded with 0, at least one entry wide."""
    counts = np.array([len(entries) for entries in lists], np.int32)
    width = max(int(counts.max(initial=0)), 1)
    if width * len(lists) > MAX_ENTRIES:
        raise Unsupported(f"its padded tables would take {width * len(lists):,} entries: the pattern is too irregular")
    table = np.zeros((len(lists), width), np.int32)
    for n, entries in enumerate(lists):
        table[n, : len(entries)] = entries
    return counts.reshape(shape), table.reshape(*shape, width)


TARGET = Target(
    name="vertical_slash",
    about="blocks and columns for the vertical-slash kernels of MInference and vLLM",
    consumer="MInference at 78bb77b, _triton_mixed_sparse_attention; vLLM's sparse_attn_func",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="contract",
    read=read,
)
