"""magi_attention: slices of queries and keys with a mask type each, for MagiAttention."""

from __future__ import annotations

import numpy as np

from ..errors import StudioError
from ..layout import BlockLayout
from ._bundle import unpack
from ._frame import EXACT, Request, Target, Unsupported, Written, need_tokens, one_pattern
from ._native import design
from ._stretches import by_rows, int32, token_layout
from ._strokes import Stroke, strokes
from ._tiles import bundle

MAX_SLICES = 2**20
# (step of the first key, growth of the length) from row to row -> attention type
FULL, CAUSAL, INVERSE_CAUSAL, BIDIRECTIONAL_CAUSAL = 0, 1, 2, 3
_TYPES = {(0, 0): FULL, (0, 1): CAUSAL, (1, -1): INVERSE_CAUSAL, (1, 0): BIDIRECTIONAL_CAUSAL}


def write(request: Request) -> Written:
    """`q_ranges` and `k_ranges` int32 [slices, 2], half-open ranges of indices; `attn_type_map` int32 [slices].

    Types: 0 full, 1 causal (aligned at the bottom right of the slice), 2 inverse causal (at its top left), 3 both. No
    pair lies in two slices. Any pattern is exact; one that is neither made of rectangles nor of bands takes a slice
    for each of its stretches. One pattern for all heads.

    Source: flex_flash_attn_func of SandAI-org/MagiAttention at 00bb98f.

    >>> import io, numpy as np, pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> file = export(ps.causal & ps.window(2, 0), ps.Problem(8), to="magi_attention")
    >>> slices = np.load(io.BytesIO(file.data))
    >>> [slices[name].tolist() for name in ("q_ranges", "k_ranges", "attn_type_map")]
    [[[0, 3], [3, 8]], [[0, 3], [1, 8]], [1, 3]]
    """
    need_tokens(request.problem)
    layout = request.lowered((1, 1))
    one_pattern(layout)
    found = [part for stroke in strokes(layout.rows, 0, request.problem.q_len) for part in _shaped(stroke)]
    if len(found) > MAX_SLICES:
        raise Unsupported(
            f"it would take {len(found):,} slices, more than {MAX_SLICES:,}: the pattern has no large pieces"
        )
    q_ranges = [(s.row, s.row + s.rows) for s in found]
    # The slice's keys: those of its first row to those of its last.
    k_ranges = [(s.start, s.start + s.length + (s.rows - 1) * (s.step + s.growth)) for s in found]
    arrays = {
        "q_ranges": np.array(q_ranges, np.int32).reshape(-1, 2),
        "k_ranges": np.array(k_ranges, np.int32).reshape(-1, 2),
        "attn_type_map": np.array([_TYPES[s.step, s.growth] for s in found], np.int32),
    }
    return bundle(request, "magi_attention", layout, EXACT, arrays)


def read(source: bytes) -> BlockLayout:
    """The slices as a layout of single tokens; every head sees them."""
    stated, parts = unpack(source)
    problem = design(stated, "magi_attention", ("fidelity",)).problem
    kinds = int32(parts, "attn_type_map", (None,))
    q, k = (int32(parts, name, (len(kinds), 2)) for name in ("q_ranges", "k_ranges"))
    if not np.isin(kinds, list(_TYPES.values())).all() or (q[:, 1] < q[:, 0]).any():
        raise StudioError("expected ranges that begin before they end and attention types 0 to 3; export it again")
    piece, row = by_rows(q[:, 0], q[:, 1] - q[:, 0])
    begin, end, kind = k[piece, 0], k[piece, 1], kinds[piece]
    # Row by row the first key moves on with types 2 and 3, and the last one, bottom right, with 1 and 3.
    start = begin + np.where(kind >= INVERSE_CAUSAL, row - q[piece, 0], 0)
    stop = end - np.where(kind % 2 == CAUSAL, q[piece, 1] - 1 - row, 0)
    return token_layout(problem, np.zeros(problem.heads, np.int32), row, np.minimum(start, stop), stop)


def _shaped(stroke: Stroke) -> list[Stroke]:
    """The stroke, or its rows one by one where no type has its shape."""
    if (stroke.step, stroke.growth) in _TYPES:
        return [stroke]
    return [
        Stroke(stroke.row + n, 1, stroke.start + n * stroke.step, 0, stroke.length + n * stroke.growth, 0, stroke.ref)
        for n in range(stroke.rows)
    ]


TARGET = Target(
    name="magi_attention",
    about="slices of queries and keys with a mask type each, for MagiAttention",
    consumer="SandAI-org/MagiAttention at 00bb98f, flex_flash_attn_func",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="contract",
    read=read,
)
