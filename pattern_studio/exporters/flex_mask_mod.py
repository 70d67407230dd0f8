"""flex_mask_mod: Python text of the mask_mod alone, for torch's create_block_mask or a score_mod of one's own."""

from __future__ import annotations

from ._frame import Request, Target, Written, need_tokens
from ._render import about, imports, mask_code, module, sizes

USAGE = """
Usage (create_block_mask evaluates every pair, so it is for short lengths; the target flex_attention lists tiles):

    from torch.nn.attention.flex_attention import create_block_mask

    block_mask = create_block_mask({mask_mod}, None, {heads}, {q_len}, {kv_len}, device=device)
"""


def write(request: Request) -> Written:
    """A module with `mask_mod(b, h, q_idx, kv_idx) -> bool tensor`, and with tables `mask_mod_on(device)`. Exact.

    Indices count query rows and keys, from 0; any block size fits. Heads are told apart by tables, never by branches.

    Source: the mask_mod of torch.nn.attention.flex_attention, torch 2.13.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> export(ps.causal, ps.Problem(256), 128, to="flex_mask_mod").content.splitlines()[-1]
    '    return kv_idx <= q_idx'
    """
    need_tokens(request.problem)
    layout = request.layout
    code, closed = mask_code(request, layout)
    usage = USAGE.format(
        mask_mod="mask_mod_on(device)" if code.tables else "mask_mod",
        q_len=request.problem.q_len,
        kv_len=request.problem.kv_len,
        heads=request.problem.heads if layout.groups > 1 else None,
    )
    head = [f'"""A mask_mod for FlexAttention, of the pattern\n\n{about(request, layout)}\n{usage}"""\n']
    head += [imports(code, code.helpers)] * bool(code.tables)
    head += [sizes(request, layout)] * (not closed) + code.constants
    return Written(module(head, code, code.helpers))


TARGET = Target(
    name="flex_mask_mod",
    about="Python text of FlexAttention's mask_mod alone",
    consumer="torch.nn.attention.flex_attention of torch 2.13",
    suffix=".py",
    media_type="text/x-python",
    write=write,
    proof="run",
    head_dims=range(16, 2**16),  # as flex_attention
    grouped="own",
)
