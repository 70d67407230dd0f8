"""xformers: Python text with an attention bias where xFormers has one, else a block-sparse layout."""

from __future__ import annotations

from ._forms import local
from ._frame import Request, Target, Unsupported, Written, need_tokens
from ._lookup_source import tile_constant
from ._mask_helpers import HELPERS
from ._render import about, sizes
from ._strokes import literal
from ._tiles import causal_or_covered, square

BLOCKS = (16, 32, 64, 128)

BIAS = '''
from xformers.ops.fmha.attn_bias import LocalAttentionFromBottomRightMask


def attn_bias():
    """For xformers.ops.memory_efficient_attention(q, k, v, attn_bias=attn_bias())."""
    return LocalAttentionFromBottomRightMask(window_left={left}, window_right={right})
'''

LAYOUT = '''

def layout():
    """int64 [heads, query blocks, key blocks], 0 or 1: BlockSparseAttention(layout(), BLOCK_Q, causal=CAUSAL)."""
    return (_tile_codes(TILES) > 0).long(){heads}


'''


def write(request: Request) -> Written:
    """A module with `attn_bias()` for windows, else with `layout()`, int64 [heads, n / block, n / block], and CAUSAL.

    Windows are exact; they count from the bottom right (the last query sees the last key), one for all heads. Layouts
    take as many queries as keys and square blocks of 16, 32, 64 or 128 that divide the length. A layout says nothing
    inside a block but what CAUSAL says, so other partial tiles make it a cover.

    Source: xFormers, LocalAttentionFromBottomRightMask of ops/fmha/attn_bias.py, and BlockSparseAttention of
    components/attention/blocksparse.py at 2aa5c2c.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check, export
    >>> export(ps.causal & ps.window(63, 0), ps.Problem(256), to="xformers").content.splitlines()[-1]
    '    return LocalAttentionFromBottomRightMask(window_left=63, window_right=0)'
    >>> str(check(ps.causal & ps.chunk(128), ps.Problem(256), to="xformers"))
    'exact'
    """
    need_tokens(request.problem)
    problem, layout = request.problem, request.layout
    form = local(request) if layout.groups == 1 and problem.offset == problem.kv_len - problem.q_len else None
    head = f'"""For xFormers, of the pattern\n\n{about(request, layout)}\n"""\n'
    if form and form.rate == 1 and not form.sinks:
        return Written(head.replace("PyTorch", "xFormers") + BIAS.format(left=form.left, right=form.right))
    square(request)
    if request.block[0] not in BLOCKS:
        raise Unsupported(f"its blocks are of {', '.join(map(str, BLOCKS))} tokens, got {request.block[0]}")
    fidelity, causal = causal_or_covered(request, layout)
    parts = [head, "import torch\n", sizes(request, layout), f"CAUSAL = {causal}", tile_constant(layout, merged=True)]
    pick = f".repeat({problem.heads}, 1, 1)"
    if layout.groups > 1:
        parts.append(literal("HEAD_GROUP", layout.head_group.tolist(), "which of the patterns each head follows"))
        pick = "[list(HEAD_GROUP)]"
    text = "\n".join(parts) + "\n" + LAYOUT.format(heads=pick) + HELPERS["_tile_codes"]
    return Written(text, fidelity)


TARGET = Target(
    name="xformers",
    about="an attention bias of xFormers for windows, else its block-sparse layout",
    consumer="xFormers, attn_bias.py; its block-sparse attention at 2aa5c2c",
    suffix=".py",
    media_type="text/x-python",
    write=write,
    proof="contract",
)
