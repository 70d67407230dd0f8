"""flex_attention: Python text that builds the BlockMask of torch's FlexAttention."""

from __future__ import annotations

from ..layout import BlockLayout
from ._flex_tiles import NATIVE, RULE, fits
from ._frame import Request, Target, Unsupported, Written, need_tokens
from ._lookup_source import tile_constant
from ._render import about, imports, mask_code, module, sizes

MAX_TILES = 2**28  # of one table over all heads' tiles; torch makes several of that size

USAGE = """
Usage, with q of shape [batch, heads, {q_len}, head_dim], k and v of shape [batch, kv_heads, {kv_len}, head_dim]:

    import torch
    from torch.nn.attention.flex_attention import flex_attention

    out = torch.compile(flex_attention)(q, k, v, block_mask=block_mask(q.device), enable_gqa=True)
"""

BUILD = '''def block_mask(device="cuda"):
    """The BlockMask on a device. It lists tiles, so nothing of size Q_LEN x KV_LEN is ever made."""
    codes = _tile_codes(TILES){heads}
    partial, full = _tile_lists(codes > 1, device), _tile_lists(codes == 1, device)
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=(BLOCK_Q, BLOCK_K), mask_mod={mask_mod}, seq_lengths=(Q_LEN, KV_LEN)
    )
'''


def write(request: Request) -> Written:
    """A module with `block_mask(device)` and `mask_mod(b, h, q_idx, kv_idx)`, which imports torch alone. Exact.

    Where every primitive has a closed form the mask_mod is readable code, else it looks tiles up. Heads that differ
    are told apart by tables, never by branches. Where a block side does not fit FlexAttention (it takes 16, 32, 64,
    128 or a multiple of 128 that divides the length) the pattern is lowered again with that side at 128, which a note
    says. `to_block_mask(layout, device)` builds the same mask in Python.

    Source: BlockMask.from_kv_blocks and flex_attention of torch 2.13.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> text = export(ps.causal & ps.window(63, 0), ps.Problem(256), 128, to="flex_attention").content
    >>> space = {}
    >>> exec(text, space)
    >>> space["block_mask"]("cpu").kv_num_blocks.tolist()
    [[[1, 2]]]
    """
    need_tokens(request.problem)
    layout, notes = _fitted(request)
    code, closed = mask_code(request, layout)
    names = [*code.helpers, "_tile_codes", "_tile_lists"]
    usage = USAGE.format(q_len=request.problem.q_len, kv_len=request.problem.kv_len)
    head = [
        f'"""A block mask for FlexAttention, of the pattern\n\n{about(request, layout)}\n{usage}"""\n',
        imports(code, names, "from torch.nn.attention.flex_attention import BlockMask\n"),
        sizes(request, layout),
        *code.constants,
    ]
    if closed:
        head.append(tile_constant(layout, merged=True))
    heads = "[list(HEAD_GROUP)]" if layout.groups > 1 else ""
    build = BUILD.format(heads=heads, mask_mod="mask_mod_on(device)" if code.tables else "mask_mod")
    return Written(module(head, code, names, build), notes=notes)


def _fitted(request: Request) -> tuple[BlockLayout, tuple[str, ...]]:
    """The layout at a block size that FlexAttention takes, and what to say about it."""
    problem, (block_q, block_k) = request.problem, request.block
    fitting_q = block_q if fits(block_q, problem.q_len) else NATIVE
    fitting_k = block_k if fits(block_k, problem.kv_len) else NATIVE
    layout, notes = request.lowered((fitting_q, fitting_k)), []
    tiles = layout.q_blocks * layout.kv_blocks * problem.heads
    if tiles > MAX_TILES:
        raise Unsupported(f"a BlockMask lists every tile of every head, here {tiles:,}: use a larger block")
    if layout.block != request.block:
        notes.append(f"lowered at {fitting_q} x {fitting_k}, not {block_q} x {block_k}: FlexAttention takes {RULE}")
    if min(layout.block) < NATIVE:
        notes.append(
            "a block below 128 needs kernel_options with BLOCK_M and BLOCK_N that divide it on CUDA, and the backward "
            "kernels may not take it: use 128 to train"
        )
    return layout, tuple(notes)


TARGET = Target(
    name="flex_attention",
    about="Python text that builds torch's BlockMask, with its mask_mod",
    consumer="torch.nn.attention.flex_attention of torch 2.13",
    suffix=".py",
    media_type="text/x-python",
    write=write,
    proof="run",
    head_dims=range(16, 2**16),  # "at least 16" on CUDA, torch/_inductor/kernel/flex/flex_attention.py
    grouped="own",  # enable_gqa
)
