"""block_sparse_attention: the block mask of MIT's Block-Sparse-Attention."""

from __future__ import annotations

import numpy as np

from ..expr import Pattern
from ._frame import Request, Target, Written, need_tokens
from ._tiles import active, at_block, bundle, causal_or_covered, read_tiles

BLOCK = (128, 128)


def write(request: Request) -> Written:
    """`base_blockmask` bool [1, heads, ceil(q_len / 128), ceil(kv_len / 128)], `head_mask_type` int32 [heads].

    Every head is of type 1, block-sparse. The header's `causal` is the `is_causal` to pass: the kernel then also cuts
    at the diagonal, counted from the bottom right. Exact where whole tiles, or whole tiles under causal, are the
    pattern.

    Source: block_sparse_attn_func of mit-han-lab/Block-Sparse-Attention at 3c3e27b.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check
    >>> str(check(ps.causal, ps.Problem(512), to="block_sparse_attention"))
    'exact'
    >>> str(check(ps.window(3, 3), ps.Problem(256), to="block_sparse_attention"))
    'cover(+63756)'
    """
    need_tokens(request.problem)
    layout, notes = at_block(request, BLOCK)
    fidelity, causal = causal_or_covered(request, layout)
    arrays = {
        "base_blockmask": active(layout)[None],
        "head_mask_type": np.ones(request.problem.heads, np.int32),
    }
    return bundle(request, "block_sparse_attention", layout, fidelity, arrays, notes, causal=causal)


def read(source: bytes) -> Pattern:
    """The block mask as a `blocks` pattern, under `causal` where the file says so."""
    return read_tiles(source, "block_sparse_attention", "base_blockmask", "?", batched=True, causal=True)


TARGET = Target(
    name="block_sparse_attention",
    about="the block mask of MIT's Block-Sparse-Attention",
    consumer="mit-han-lab/Block-Sparse-Attention at 3c3e27b, block_sparse_attn_func",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="contract",
    read=read,
    head_dims=(32, 64, 128),  # its README
)
