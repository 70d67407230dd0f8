"""flashinfer_bsr: a block-sparse matrix with masks inside its blocks, for FlashInfer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import ragged
from ..errors import StudioError
from ..layout import BlockLayout, Runs, TileKind
from ._bundle import unpack
from ._frame import EXACT, Request, Target, Unsupported, Written, need_tokens, one_pattern
from ._native import design
from ._tiles import bundle

MAX_MASK = 2**31  # entries of the blocks' masks, one byte each


def write(request: Request) -> Written:
    """`indptr` int32 [q_len / R + 1], `indices` int32 [nnz] and, if tiles are partial, `mask` bool [nnz, R, C]. Exact.

    Any block (R, C) that divides the lengths, one pattern for all heads. Pass the mask as `mask=` to `plan` (without it
    all blocks are full), and leave its `causal` at False. The arrays without the mask are SciPy's BSR.

    Source: BlockSparseAttentionWrapper.plan of FlashInfer at 0090a5f.

    >>> import io, numpy as np, pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> file = np.load(io.BytesIO(export(ps.causal, ps.Problem(4), 2, to="flashinfer_bsr").data))
    >>> file["indptr"].tolist(), file["indices"].tolist(), file["mask"][0].astype(int).tolist()
    ([0, 1, 3], [0, 0, 1], [[1, 0], [1, 1]])
    """
    need_tokens(request.problem)
    problem, (block_q, block_k) = request.problem, request.block
    if problem.q_len % block_q or problem.kv_len % block_k:
        raise Unsupported(
            f"it takes blocks that divide q_len {problem.q_len} and kv_len {problem.kv_len}, got {block_q} x {block_k}"
        )
    layout = request.layout
    one_pattern(layout)
    runs = layout.rows
    owner, rank = ragged(runs.length.astype(np.int64))
    tiles = np.bincount(runs.line[owner], minlength=layout.q_blocks)
    arrays: dict[str, NDArray[Any]] = {
        "indptr": np.r_[0, np.cumsum(tiles)].astype(np.int32),
        "indices": (runs.start[owner] + rank).astype(np.int32),
    }
    if (runs.kind != TileKind.FULL).any():
        if len(owner) * block_q * block_k > MAX_MASK:
            raise Unsupported(
                f"its masks would take {len(owner) * block_q * block_k:,} bytes: use a larger or smaller block"
            )
        arrays["mask"] = _masks(layout, owner, arrays["indices"])
    return bundle(request, "flashinfer_bsr", layout, EXACT, arrays)


def _masks(layout: BlockLayout, owner: NDArray[Any], key: NDArray[Any]) -> NDArray[np.bool_]:
    """The mask of each tile, bool [nnz, R, C]."""
    block_q, block_k = layout.block
    kind, ref, line = (a[owner] for a in (layout.rows.kind, layout.rows.ref, layout.rows.line))
    masks = np.ones((len(owner), block_q, block_k), bool)
    bits, band = kind == TileKind.BITS, np.flatnonzero(kind == TileKind.BAND)
    masks[bits] = layout.masks[ref[bits]]
    first = key[band].astype(np.int64) * block_k - line[band] * block_q - layout.problem.offset
    distance = first[:, None, None] + np.arange(block_k) - np.arange(block_q)[:, None]
    lo, hi = layout.bands[ref[band]].T[:, :, None, None]
    masks[band] = (lo <= distance) & (distance <= hi)
    return masks


def read(source: bytes) -> BlockLayout:
    """The layout, all partial tiles as bit masks."""
    stated, parts = unpack(source)
    made = design(stated, "flashinfer_bsr", extra=("fidelity",))
    (block_q, block_k), problem = made.block, made.problem
    rows = -(-problem.q_len // block_q)
    indptr, indices = (parts.get(name, np.zeros(0)) for name in ("indptr", "indices"))
    if indptr.dtype != np.int32 or indptr.shape != (rows + 1,) or indices.dtype != np.int32 or indices.ndim != 1:
        raise StudioError(
            f"expected indptr int32 [{rows + 1}] and indices int32 [nnz] for this problem; export it again"
        )
    if indptr[0] or (np.diff(indptr) < 0).any() or indptr[-1] != len(indices):
        raise StudioError(f"expected indptr rising from 0 to {len(indices)}; export it again")
    mask = parts.get("mask")
    if mask is not None and (mask.dtype != bool or mask.shape != (len(indices), block_q, block_k)):
        raise StudioError(f"expected mask bool [{len(indices)}, {block_q}, {block_k}]; export it again")
    bits, ref = np.zeros((0, -(-block_q * block_k // 8)), np.uint8), np.zeros(len(indices), np.int64)
    kind = np.full(len(indices), TileKind.FULL)
    if mask is not None and len(mask):
        partial = ~mask.all((1, 2))
        packed = np.packbits(mask[partial].reshape(-1, block_q * block_k), axis=1, bitorder="little")
        bits, which = np.unique(packed, axis=0, return_inverse=True)
        ref[partial], kind[partial] = which.reshape(-1), TileKind.BITS
    line, start = np.repeat(np.arange(rows), np.diff(indptr)), indices.astype(np.int64)
    runs = Runs.from_sorted(rows, line, start, start + 1, kind, ref)
    groups, bands = np.zeros(problem.heads, np.int32), np.zeros((0, 2), np.int64)
    return BlockLayout(problem, made.block, groups, runs, bands, bits).validate()


TARGET = Target(
    name="flashinfer_bsr",
    about="a block-sparse matrix with masks inside its blocks, for FlashInfer",
    consumer="FlashInfer at 0090a5f, BlockSparseAttentionWrapper.plan",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="gpu",
    read=read,
    grouped="own",  # num_qo_heads and num_kv_heads of plan
)
