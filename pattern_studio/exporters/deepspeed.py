"""deepspeed: the block layout of DeepSpeed's sparse self-attention."""

from __future__ import annotations

import numpy as np

from ..expr import Pattern
from ._frame import Request, Target, Unsupported, Written, need_tokens
from ._tiles import active, bundle, covered, read_tiles, square

BLOCKS = (16, 32, 64, 128)  # powers of two, at least a step of 16, and at most 128 wide: matmul.py of 0.17.6


def write(request: Request) -> Written:
    """`layout`, int64 0/1 of shape [heads, n / block, n / block], as `SparsityConfig.make_layout` returns it.

    Blocks are square, of 16, 32, 64 or 128 tokens, and divide the length; queries are the keys. The layout says nothing
    inside a block: where tiles are partial, causal diagonals above all, it admits more pairs than the pattern, so it is
    refused unless cover is allowed. Then DeepSpeed needs the token mask besides (`attn_mask`) to be right.

    Source: deepspeed/ops/sparse_attention/sparsity_config.py of DeepSpeed at 985acb1. Release 0.17.6 has it, 0.19.8
    has it no more.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check, export
    >>> str(check(ps.causal, ps.Problem(32), 16, to="deepspeed"))
    'cover(+240)'
    >>> file = export(ps.causal, ps.Problem(32), 16, to="deepspeed", allow="cover")
    >>> import io, numpy as np
    >>> np.load(io.BytesIO(file.data))["layout"].tolist()
    [[[1, 0], [1, 1]]]
    """
    need_tokens(request.problem)
    square(request)
    if request.block[0] not in BLOCKS:
        raise Unsupported(f"its kernels take blocks of 16, 32, 64 or 128 tokens, got {request.block[0]}")
    layout = request.layout
    fidelity = covered(layout)
    return bundle(request, "deepspeed", layout, fidelity, {"layout": active(layout).astype(np.int64)})


def read(source: bytes) -> Pattern:
    """The layout as a `blocks` pattern, one for each head where heads differ."""
    return read_tiles(source, "deepspeed", "layout", "<i8", batched=False, causal=False)


TARGET = Target(
    name="deepspeed",
    about="the block layout of DeepSpeed's sparse attention",
    consumer="DeepSpeed at 985acb1, SparsityConfig.make_layout",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="contract",
    read=read,
    head_dims=range(16, 2**16, 16),  # "Reduction size for SDD must be a multiple of 16", matmul.py
    grouped="repeat",  # sparse_self_attention.py refuses k and v of another shape than q
)
