"""npz: our own file with the lowered layout, for numpy."""

from __future__ import annotations

from ..errors import StudioError
from ..layout import BlockLayout
from ._bundle import pack, unpack
from ._frame import Request, Target, Written
from ._native import ARRAYS, arrays, layout_of, sealed


def write(request: Request) -> Written:
    """The layout's arrays (see BlockLayout for shapes and dtypes) and a header, as one .npz file.

    Arrays: head_group int32 [heads]; indptr int64 [groups * q_blocks + 1]; start, length, ref int32 [runs]; kind uint8
    [runs]; bands int64 [bands, 2]; bits uint8 [masks, bytes]. Any pattern, problem and block fits; exact.

    >>> import io, numpy as np, pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> file = export(ps.causal, ps.Problem(256), 128, to="npz")
    >>> np.load(io.BytesIO(file.data))["start"]
    array([0, 0, 1], dtype=int32)
    """
    parts = arrays(request.layout)
    return Written(pack(sealed(request, "npz", parts), parts))


def read(source: bytes) -> BlockLayout:
    """The very same layout, or a StudioError that says what is wrong with the file."""
    stated, parts = unpack(source)
    if parts.keys() != ARRAYS.keys():
        odd = ", ".join(sorted(parts.keys() ^ ARRAYS.keys()))[:200]
        raise StudioError(f"expected the arrays {', '.join(ARRAYS)}; missing or unknown: {odd}")
    for name, (dtype, dimensions) in ARRAYS.items():
        if parts[name].dtype != dtype or parts[name].ndim != dimensions:
            got = f"{parts[name].ndim} of {parts[name].dtype}"
            raise StudioError(f"expected array {name} with {dimensions} dimension(s) of {dtype}, got {got}")
    return layout_of(stated, parts, "npz")


TARGET = Target(
    name="npz",
    about="the lowered layout as numpy arrays: key runs, bands, bit masks",
    consumer="Pattern Studio, schema pattern-studio/npz version 1",
    suffix=".npz",
    media_type="application/zip",
    write=write,
    proof="run",
    read=read,
)
