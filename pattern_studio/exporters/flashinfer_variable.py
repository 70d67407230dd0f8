"""flashinfer_variable: blocks of varying sizes, cut where the pattern changes, for FlashInfer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..layout import BlockLayout
from ._bundle import unpack
from ._frame import EXACT, Request, Target, Written, need_tokens, uses_block
from ._native import design
from ._stretches import by_rows, int32, token_layout
from ._tiles import MAX_TILES, active, bundle, covered

FINER = 4  # the exact form may have this many times the blocks that were asked for: finer ones would be slow


def write(request: Request) -> Written:
    """`block_mask_map` bool [heads, MB, NB], `block_row_sz` int32 [heads, MB], `block_col_sz` int32 [heads, NB].

    Exact where cuts make the pattern a set of rectangles (documents, chunks, globals, blocks) and on neither side are
    more than four times as many as blocks were asked for. A diagonal has no such cuts: then the blocks of the size
    asked for are covered. The maps are by KV head: with grouped heads give each group the map that its query heads
    share.

    Source: VariableBlockSparseAttentionWrapper.plan of FlashInfer at 0090a5f.

    >>> import io, numpy as np, pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> file = export(ps.docs, ps.Problem(8, docs=(3, 5)), to="flashinfer_variable")
    >>> np.load(io.BytesIO(file.data))["block_row_sz"].tolist()
    [[3, 5]]
    """
    need_tokens(request.problem)
    heads = request.problem.heads
    layout, fidelity = request.layout, covered(request.layout)
    cuts = None if fidelity == EXACT or uses_block(request.pattern) else _cuts(request)
    if cuts is None:
        row_ends, col_ends = (
            _ends(layout.block[0], request.problem.q_len),
            _ends(layout.block[1], request.problem.kv_len),
        )
        mask = active(layout)
    else:
        (row_ends, col_ends, mask), fidelity = cuts, EXACT
    arrays = {
        "block_mask_map": mask,
        "block_row_sz": np.tile(np.diff(row_ends, prepend=0).astype(np.int32), (heads, 1)),
        "block_col_sz": np.tile(np.diff(col_ends, prepend=0).astype(np.int32), (heads, 1)),
    }
    return bundle(request, "flashinfer_variable", layout, fidelity, arrays)


def read(source: bytes) -> BlockLayout:
    """The blocks as a layout of single tokens."""
    stated, parts = unpack(source)
    problem = design(stated, "flashinfer_variable", ("fidelity",)).problem
    sizes = [int32(parts, name, (problem.heads, None)) for name in ("block_row_sz", "block_col_sz")]
    mask = parts.get("block_mask_map", np.zeros(0))
    shape = (problem.heads, sizes[0].shape[1], sizes[1].shape[1])
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise StudioError(f"expected block_mask_map bool {list(shape)}, got {mask.dtype} {list(mask.shape)}")
    for size, length in zip(sizes, (problem.q_len, problem.kv_len), strict=True):
        if (size < 0).any() or (size.sum(1) != length).any():
            raise StudioError(f"expected block sizes that add up to {length} for each head; export it again")
    rows, columns = (np.cumsum(size, 1) - size for size in sizes)
    head, down, across = np.nonzero(mask)
    piece, row = by_rows(rows[head, down], sizes[0][head, down])
    first, size = columns[head, across][piece], sizes[1][head, across][piece]
    groups = np.arange(problem.heads, dtype=np.int32)
    return token_layout(problem, groups, head[piece] * problem.q_len + row, first, first + size)


def _ends(size: int, length: int) -> list[int]:
    """Ends of blocks of one size, the last one cut."""
    return [*range(size, length, size), length]


def _cuts(request: Request) -> tuple[list[int], list[int], NDArray[np.bool_]] | None:
    """Row and column ends that cut the pattern into rectangles, and which are allowed; None for too many."""
    problem = request.problem
    single = request.lowered((1, 1))
    runs, stop = single.rows, single.rows.start + single.rows.length
    columns = np.unique(np.r_[runs.start, stop, problem.kv_len])
    columns = columns[columns > 0]
    most = [FINER * -(-n // size) for n, size in zip((problem.q_len, problem.kv_len), request.block, strict=True)]
    begins = {0}
    for line in range(single.groups * problem.q_len):
        if line % problem.q_len and _content(single, line) != _content(single, line - 1):
            begins.add(line % problem.q_len)
        if len(begins) > most[0] or len(columns) > most[1]:
            return None
    rows = sorted(begins)
    if len(rows) * len(columns) * problem.heads > MAX_TILES:
        return None
    mask = np.zeros((single.groups, len(rows), len(columns)), bool)
    for group in range(single.groups):
        for n, row in enumerate(rows):
            span = slice(*runs.indptr[group * problem.q_len + row :][:2])
            low, high = (np.searchsorted(columns, ends[span], "right") for ends in (runs.start, stop))
            for first, last in zip(low.tolist(), high.tolist(), strict=True):
                mask[group, n, first:last] = True
    return [*rows[1:], problem.q_len], columns.tolist(), mask[single.head_group]


def _content(layout: BlockLayout, line: int) -> tuple[bytes, bytes]:
    span = slice(*layout.rows.indptr[line : line + 2])
    return layout.rows.start[span].tobytes(), layout.rows.length[span].tobytes()


TARGET = Target(
    name="flashinfer_variable",
    about="blocks of varying sizes, cut where the pattern changes, for FlashInfer",
    consumer="FlashInfer at 0090a5f, VariableBlockSparseAttentionWrapper.plan",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="gpu",
    read=read,
    grouped="maps",  # block_mask_map is by KV head
)
