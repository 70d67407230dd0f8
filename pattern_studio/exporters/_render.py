"""Generated modules put together: docstring, imports, constants, helpers, mask_mod."""

from __future__ import annotations

import textwrap

from ..layout import BlockLayout
from ._frame import Request
from ._lookup_source import lookup
from ._mask_code import MaskCode, NoClosedForm
from ._mask_helpers import HELPERS
from ._mask_source import closed_form

MAX_SHOWN = 2000  # characters of a pattern's text in a docstring


def mask_code(request: Request, layout: BlockLayout, reach: int = 0) -> tuple[MaskCode, bool]:
    """The mask as code, and whether it is in closed form (otherwise tiles are looked up)."""
    pattern, problem = request.pattern, request.problem
    resolved = [pattern.resolve(head, request.layer) for head in range(problem.heads)]
    distinct = list(dict.fromkeys(resolved))
    try:
        return closed_form(distinct, layout.head_group, problem, reach), True
    except NoClosedForm:
        return lookup(layout), False


def about(request: Request, layout: BlockLayout) -> str:
    """The lines of a docstring that say what the module holds."""
    problem, (block_q, block_k) = request.problem, layout.block
    text = str(request.pattern)
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ... ({len(text):,} characters)"
    pattern = textwrap.fill(shown, 100, break_long_words=False, break_on_hyphens=False)
    layer = "" if request.layer is None else f", layer {request.layer}"
    heads = "any number of heads" if layout.groups == 1 else f"{problem.heads} heads"
    pairs = layout.pairs // problem.heads if layout.groups == 1 else layout.pairs
    of = "a head's" if layout.groups == 1 else "all heads'"
    total = problem.q_len * problem.kv_len * (1 if layout.groups == 1 else problem.heads)
    return (
        f"{textwrap.indent(pattern, '    ')}\n\n"
        f"Pattern hash {request.pattern.hash}{layer}. For q_len {problem.q_len}, kv_len {problem.kv_len} and {heads}; "
        f"query row r stands\nat position r + {problem.offset}. It allows {pairs:,} of {of} {total:,} pairs. "
        f"Blocks: {block_q} queries x {block_k} keys.\n"
        "Made by Pattern Studio; this file needs nothing but PyTorch."
    )


def sizes(request: Request, layout: BlockLayout) -> str:
    """Lengths and block size as module-level constants."""
    problem, block = request.problem, layout.block
    return f"Q_LEN, KV_LEN = {problem.q_len}, {problem.kv_len}\nBLOCK_Q, BLOCK_K = {block[0]}, {block[1]}"


def module(head: list[str], code: MaskCode, names: list[str], more: str = "", cached: bool = False) -> str:
    """The module's text: docstring, imports and constants, mask_mod, more functions, the helpers of these names."""
    used = [text for name, text in HELPERS.items() if name in names]
    parts = ["\n".join(head).rstrip() + "\n", mask_function(code, cached), more, *used]
    if code.tables:  # at the very end, where the helpers are defined
        parts.append('mask_mod = mask_mod_on("cpu")\n')
    return "\n\n".join(part for part in parts if part)


def mask_function(code: MaskCode, cached: bool = False) -> str:
    """`mask_mod`, and with tables `mask_mod_on(device)`, which makes one for a device (once, if `cached`)."""
    told = '"""Whether query row `q_idx` may see key `kv_idx` (tensors): bool of their broadcast shape."""'
    body = "\n".join(["def mask_mod(b, h, q_idx, kv_idx):", *(f"    {t}" for t in (told, *code.body))])
    body += f"\n    return {code.result}\n"
    if not code.tables:
        return body
    tables = "\n".join(f"    {name} = {builder}.to(device)" for name, builder in code.tables.items())
    return (
        "@functools.cache\n" * cached + 'def mask_mod_on(device):\n    """A mask_mod with its tables on a device."""\n'
        f"{tables}\n\n{textwrap.indent(body, '    ')}\n    return mask_mod\n"
    )


def imports(code: MaskCode, names: list[str], more: str = "", cached: bool = False) -> str:
    """The import lines of a module with these helpers."""
    packed = ["base64", "zlib"] if "_bit_masks" in names else []
    standard = sorted([*packed, *["functools"] * bool(cached and code.tables)])
    lead = "".join(f"import {name}\n" for name in standard) + "\n" * bool(standard)
    return f"{lead}import torch\n{more}" if code.tables or more else ""
