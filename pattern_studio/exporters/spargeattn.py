"""spargeattn: the block map of SpargeAttn."""

from __future__ import annotations

import numpy as np

from ..expr import Pattern
from ._frame import Request, Target, Unsupported, Written
from ._tiles import active, at_block, bundle, covered, read_tiles

BLOCKS = ((128, 64), (64, 128))  # queries x keys; the second is what sm90 takes


def write(request: Request) -> Written:
    """`mask_id`, int8 0/1 of shape [1, heads, ceil(n / 128), ceil(n / 64)]; with block=(64, 128) that of sm90.

    The kernel has no mask inside a block and no causal flag, so partial tiles make it a cover. It takes at least 128
    queries, and quantises q and k to int8 whatever the mask.

    Source: block_sparse_sage2_attn_cuda of thu-ml/SpargeAttn at 4ee609e.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check
    >>> str(check(ps.chunk(128), ps.Problem(512), (128, 64), to="spargeattn"))
    'exact'
    """
    problem = request.problem
    if problem.q_len < 128 or not problem.kv_len:
        raise Unsupported(f"it takes at least 128 queries, got q_len {problem.q_len} and kv_len {problem.kv_len}")
    layout, notes = at_block(request, request.block if request.block in BLOCKS else BLOCKS[0])
    fidelity = covered(layout)
    return bundle(request, "spargeattn", layout, fidelity, {"mask_id": active(layout)[None].astype(np.int8)}, notes)


def read(source: bytes) -> Pattern:
    """The block map as a `blocks` pattern, one for each head where heads differ."""
    return read_tiles(source, "spargeattn", "mask_id", "i1", batched=True, causal=False)


TARGET = Target(
    name="spargeattn",
    about="the block map of SpargeAttn",
    consumer="thu-ml/SpargeAttn at 4ee609e, block_sparse_sage2_attn_cuda",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="contract",
    read=read,
    head_dims=(64, 128),  # spas_sage_attn/core.py, which advises padding for others
    grouped="own",
)
