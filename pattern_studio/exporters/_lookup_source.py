"""A layout as mask_mod code that looks tiles up: for every pattern, with tables as large as the layout is irregular."""

from __future__ import annotations

import base64
import zlib

from ..layout import BlockLayout
from ._flex_tiles import code_table, codes
from ._frame import Unsupported
from ._mask_code import MaskCode
from ._strokes import literal, strokes

MAX_TEXT = 2**25  # characters of generated tables


def tile_constant(layout: BlockLayout, merged: bool) -> str:
    """The constant TILES: the strokes of each head group, with the tiles' codes."""
    runs = codes(layout, merged)
    if len(runs.start) > MAX_TEXT // 16:
        raise Unsupported(f"as text the {len(runs.start):,} runs of tiles are too long: export to npz or safetensors")
    groups = [tuple(strokes(runs, group * layout.q_blocks, layout.q_blocks)) for group in range(layout.groups)]
    told = "tiles by strokes: (row, rows, start, step, length, growth, code); row + n has length + n * growth tiles"
    if layout.groups == 1:
        return literal("STROKES", list(groups[0]), told) + "\nTILES = (STROKES,)"
    return literal("TILES", groups, told + ", by pattern")


def lookup(layout: BlockLayout) -> MaskCode:
    """Code that decides a pair by its tile: a band on kv_idx - q_idx, and a bit mask where there are any."""
    code = MaskCode(helpers=["_tile_codes"], constants=[tile_constant(layout, merged=False)])
    lo, hi, place = code_table(layout)
    told = "by code: smallest and largest kv_idx - q_idx"
    code.constants.append(literal("BANDS", list(zip(lo.tolist(), hi.tolist(), strict=True)), told))
    code.tables = {"codes": "_tile_codes(TILES)", "bands": "torch.tensor(BANDS)"}
    group = "0"
    if layout.groups > 1:
        told = "which of the patterns each head follows"
        code.constants.append(literal("HEAD_GROUP", layout.head_group.tolist(), told))
        code.tables["head_group"] = "torch.tensor(HEAD_GROUP)"
        group = "head_group[h]"
    block_q, block_k = layout.block
    code.body = [
        f"code = codes[{group}, q_idx // {block_q}, kv_idx // {block_k}]",
        "distance = kv_idx - q_idx",
    ]
    code.result = "(bands[code, 0] <= distance) & (distance <= bands[code, 1])"
    if len(layout.bits):
        text = base64.b85encode(zlib.compress(layout.bits.tobytes(), 9)).decode()
        if len(text) > MAX_TEXT:
            raise Unsupported(f"as text its bit masks take {len(text):,} characters: export to npz or safetensors")
        pieces = [text[n : n + 96] for n in range(0, len(text), 96)]
        code.constants.append(literal("MASKS", pieces, "the bit masks, packed and compressed"))
        code.constants.append(literal("PLACES", place.tolist(), "by code: the bit mask"))
        code.tables |= {"masks": "_bit_masks(MASKS)", "places": "torch.tensor(PLACES)"}
        code.helpers.append("_bit_masks")
        code.body.append(f"in_band = {code.result}")
        code.result = f"in_band & masks[places[code], q_idx % {block_q}, kv_idx % {block_k}]"
    return code
