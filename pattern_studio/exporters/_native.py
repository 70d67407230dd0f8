"""The header that all of our own files carry, and the arrays of a lowered layout; both read back as hostile.

The header says what was exported: schema, version, pattern text and hash, problem, block and layer. `Design` is its
meaning. The arrays are those of BlockLayout, under their own names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as short  # what a hostile file says may be megabytes long
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..expr import LANGUAGE_VERSION, Pattern
from ..layout import UNBOUNDED, BlockLayout, Runs, TileKind
from ..lowering import lower
from ..parse import parse
from ..problem import Problem, block_shape, whole
from ._frame import Request

VERSION = 1  # of every schema here; raise it when a file written from now on can't be read by older releases
FIELDS = ("schema", "version", "language", "pattern", "hash", "problem", "block", "layer")
# name -> (dtype, dimensions) of a layout's arrays; see BlockLayout and Runs for what they mean
ARRAYS: dict[str, tuple[np.dtype, int]] = {
    "head_group": (np.dtype("<i4"), 1),
    "indptr": (np.dtype("<i8"), 1),
    "start": (np.dtype("<i4"), 1),
    "length": (np.dtype("<i4"), 1),
    "kind": (np.dtype("u1"), 1),
    "ref": (np.dtype("<i4"), 1),
    "bands": (np.dtype("<i8"), 2),
    "bits": (np.dtype("u1"), 2),
}


@dataclass(frozen=True)
class Design:
    """What a native file holds besides arrays: the pattern and what it was lowered for."""

    pattern: Pattern
    problem: Problem
    block: tuple[int, int]
    layer: int | None = None

    def lower(self) -> BlockLayout:
        """The layout, made anew from the pattern."""
        return lower(self.pattern, self.problem, block=self.block, layer=self.layer)


def schema(target: str) -> str:
    """The schema name of a target's files."""
    return f"pattern-studio/{target}"


def header(request: Request, target: str) -> dict[str, Any]:
    """The header of a request, ready for JSON."""
    problem = request.problem
    return {
        "schema": schema(target),
        "version": VERSION,
        "language": LANGUAGE_VERSION,
        "pattern": str(request.pattern),
        "hash": request.pattern.hash,
        "problem": {
            "q_len": problem.q_len,
            "kv_len": problem.kv_len,
            "q_offset": problem.offset,
            "heads": problem.heads,
            "docs": None if problem.docs is None else list(problem.docs),
        },
        "block": list(request.block),
        "layer": request.layer,
    }


def design(stated: Any, target: str, extra: tuple[str, ...] = ()) -> Design:
    """The meaning of a header that claims to be a target's, or a StudioError that says what is wrong with it."""
    if not isinstance(stated, dict) or "schema" not in stated:
        raise StudioError(f"expected a file of schema {schema(target)!r}, got one without a schema; export it again")
    if stated["schema"] != schema(target):
        raise StudioError(f"expected a file of schema {schema(target)!r}, got {short(stated['schema'])}")
    for name, known in (("version", VERSION), ("language", LANGUAGE_VERSION)):
        value = whole(f"the file's {name}", stated.get(name), 1)
        if value != known:
            fix = "update Pattern Studio" if value > known else "export it again"
            raise StudioError(f"expected a file of {name} {known}, got {name} {value}; {fix}")
    if stated.keys() != {*FIELDS, *extra}:
        odd = sorted(map(str, stated.keys() ^ {*FIELDS, *extra}))
        raise StudioError(f"expected a header with {', '.join((*FIELDS, *extra))}; missing or unknown: {short(odd)}")
    pattern = parse(_of_type(stated, "pattern", str))
    if stated["hash"] != pattern.hash:
        raise StudioError(
            f"the pattern's hash is {pattern.hash}, but the file says {short(stated['hash'])}: "
            "the text was changed or damaged; export it again"
        )
    problem = _of_type(stated, "problem", dict)
    names = {"q_len", "kv_len", "q_offset", "heads", "docs"}
    if problem.keys() != names:
        raise StudioError(f"expected a problem with {', '.join(sorted(names))}, got {short(sorted(problem))}")
    lengths = {name: whole(name, problem[name], 0) for name in ("q_len", "kv_len")}
    docs = None if problem["docs"] is None else tuple(_of_type(problem, "docs", list))
    layer = None if stated["layer"] is None else whole("the layer", stated["layer"], 0, 65535)
    offset = whole("q_offset", problem["q_offset"], -(2**31))
    shape = block_shape(_of_type(stated, "block", list))
    return Design(pattern, Problem(**lengths, q_offset=offset, heads=problem["heads"], docs=docs), shape, layer)


def arrays(layout: BlockLayout) -> dict[str, NDArray[Any]]:
    """A layout's arrays by name, in the dtypes of ARRAYS."""
    rows = layout.rows
    found = {
        "head_group": layout.head_group,
        "indptr": rows.indptr,
        "start": rows.start,
        "length": rows.length,
        "kind": rows.kind,
        "ref": rows.ref,
        "bands": layout.bands,
        "bits": layout.bits,
    }
    return {name: np.ascontiguousarray(array, ARRAYS[name][0]) for name, array in found.items()}


def digest(stated: Mapping[str, Any], parts: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 (64 hex digits) over a header and a layout's arrays: shapes and contents."""
    told = {name: stated[name] for name in FIELDS}
    total = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode())
    for name in ARRAYS:
        total.update(f"{name}{parts[name].shape}".encode())
        total.update(parts[name].tobytes())
    return total.hexdigest()


def sealed(request: Request, target: str, parts: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The header of a file with arrays: `layout` is the digest of both."""
    stated = header(request, target)
    return stated | {"layout": digest(stated, parts)}


def layout_of(stated: Any, parts: Mapping[str, NDArray[Any]], target: str) -> BlockLayout:
    """The layout of a file's header and arrays (whose dtypes and dimensions were checked), every content checked."""
    made = design(stated, target, extra=("layout",))
    if stated["layout"] != digest(stated, parts):
        raise StudioError("the file's contents do not have the SHA-256 that it states: it is damaged; export it again")
    rows = Runs(parts["indptr"], parts["start"], parts["length"], parts["kind"], parts["ref"])
    layout = BlockLayout(
        made.problem, made.block, parts["head_group"], rows, parts["bands"], parts["bits"], made.pattern.hash
    ).validate()
    bands = layout.bands
    if not ((bands[:, 0] >= -UNBOUNDED) & (bands[:, 0] <= bands[:, 1]) & (bands[:, 1] <= UNBOUNDED)).all():
        raise StudioError(f"expected bands with -{UNBOUNDED} <= lo <= hi <= {UNBOUNDED}, got others; export it again")
    if _overhangs(layout):
        raise StudioError("a bit mask allows pairs beyond q_len or kv_len: the file is damaged; export it again")
    return layout


def _overhangs(layout: BlockLayout) -> bool:
    """Whether a bit mask at a ragged end allows pairs that do not exist."""
    rows, (block_q, block_k) = layout.rows, layout.block
    height = layout.problem.q_len - (layout.q_blocks - 1) * block_q
    width = layout.problem.kv_len - (layout.kv_blocks - 1) * block_k
    last_row = rows.line % max(layout.q_blocks, 1) == layout.q_blocks - 1
    last_key = rows.start.astype(np.int64) + rows.length == layout.kv_blocks
    for ragged, place, kept in (
        (height < block_q, last_row, (height, block_k)),
        (width < block_k, last_key, (block_q, width)),
    ):
        used = np.unique(rows.ref[place & (rows.kind == TileKind.BITS)])
        if ragged and len(used):
            outside = np.ones((block_q, block_k), bool)
            outside[: kept[0], : kept[1]] = False
            if (layout.bits[used] & np.packbits(outside.reshape(-1), bitorder="little")).any():
                return True
    return False


def _of_type(stated: dict[str, Any], name: str, kind: type) -> Any:
    if not isinstance(stated[name], kind):
        raise StudioError(f"expected the file's {name} to be a {kind.__name__}, got {short(stated[name])}")
    return stated[name]
