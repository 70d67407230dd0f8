"""Exporters and importers: the registry, `export`, `check`, `read`, and torch's BlockMask.

To add one: a file with a `TARGET`, listed below by hand. Exporters are siblings and never import each other.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout
from ..problem import Problem, block_shape
from . import (
    block_sparse_attention,
    deepspeed,
    flash_attention_4,
    flashinfer_bsr,
    flashinfer_variable,
    flex_attention,
    flex_mask_mod,
    huggingface,
    json,
    magi_attention,
    minference,
    natten,
    npz,
    safetensors,
    spargeattn,
    vertical_slash,
    xformers,
)
from ._block_mask import to_block_mask
from ._bundle import MAX_BYTES, parsed, unpack
from ._frame import Export, Fidelity, Request, Target, Unsupported, readable
from ._native import Design, design, schema

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        flex_attention,
        flex_mask_mod,
        flash_attention_4,
        deepspeed,
        xformers,
        huggingface,
        minference,
        vertical_slash,
        natten,
        flashinfer_bsr,
        flashinfer_variable,
        block_sparse_attention,
        spargeattn,
        magi_attention,
        json,
        npz,
        safetensors,
    )
}
BY_NAME = ("cover", "lossy")  # fidelities that are given only when asked for

__all__ = [
    "TARGETS",
    "Design",
    "Export",
    "Fidelity",
    "Target",
    "check",
    "export",
    "read",
    "read_design",
    "targets",
    "to_block_mask",
]


def targets() -> list[str]:
    """The names of all targets, as `export(to=...)` takes them."""
    return list(TARGETS)


def export(
    pattern: Pattern,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    to: str = "flex_attention",
    *,
    layer: int | None = None,
    allow: str | Iterable[str] = (),
) -> Export:
    """Write a pattern for a target: text or bytes, with how faithful they are.

    `block` is one number or `(block_q, block_k)` tokens; `layer` is needed by patterns that differ by layer. Only an
    exact export is given, unless `allow` names another fidelity: "cover" (pairs are added) or "lossy" (pairs are
    missing).

    Raises:
        StudioError: an unknown target, one that can't hold the pattern, or one that holds it not exactly and that was
            not asked for by name.

    >>> import pattern_studio as ps
    >>> file = export(ps.causal & ps.window(255, 0), ps.Problem(q_len=1024), 128, to="json")
    >>> str(file.fidelity), file.suffix
    ('exact', '.json')
    """
    target = _target(to)
    asked = {allow} if isinstance(allow, str) else set(allow)
    if unknown := sorted(asked - {*BY_NAME}):
        raise StudioError(f"allow takes {' or '.join(map(repr, BY_NAME))}, got {unknown[0]!r}")
    try:
        written = target.write(_request(pattern, problem, block, layer))
    except Unsupported as reason:
        raise StudioError(f"{to} can't hold this pattern: {reason}") from None
    kind = written.fidelity.kind
    if kind in BY_NAME and kind not in asked:
        change = f"adds {written.fidelity.pairs:,}" if kind == "cover" else f"drops {written.fidelity.pairs:,}"
        reason = f": {written.fidelity.reason}" if written.fidelity.reason else ""
        raise StudioError(
            f"{to} can't hold this pattern exactly, it {change} pairs{reason}; "
            f"take another target or ask for it by name (allow={kind!r})"
        )
    return Export(to, written.content, target.suffix, target.media_type, written.fidelity, written.notes)


def check(
    pattern: Pattern,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    to: str = "flex_attention",
    *,
    layer: int | None = None,
) -> Fidelity:
    """How faithfully a target holds a pattern, without an error where it does not.

    >>> import pattern_studio as ps
    >>> str(check(ps.causal, ps.Problem(0), to="flex_attention"))
    'unsupported(it takes at least one query and one key, got q_len 0 and kv_len 0)'
    """
    try:
        return _target(to).write(_request(pattern, problem, block, layer)).fidelity
    except Unsupported as reason:
        return Fidelity("unsupported", reason=str(reason))


def read(source: str | os.PathLike[str] | bytes) -> BlockLayout | Pattern:
    """Read a file that an exporter wrote, given as a path or as its bytes, by what it says of itself.

    `json` gives the Pattern, `npz` and `safetensors` the very BlockLayout; other formats what their importer says.
    Files are untrusted: nothing is unpickled or run, sizes are checked before anything is allocated.

    Raises:
        StudioError: a file that can't be read, of an unknown format or version, damaged, or that doesn't fit itself.
    """
    data = _data(source)
    return _importer(data)(data)


def read_design(source: str | os.PathLike[str] | bytes) -> Design:
    """The pattern, problem, block and layer that a native file (json, npz, safetensors) was made from."""
    data = _data(source)
    name = _importer_name(data)
    if name == "json":
        return design(parsed(data), "json")
    if name == "npz":
        return design(unpack(data)[0], "npz", extra=("layout",))
    if name == "safetensors":
        return design(safetensors.metadata_of(data), "safetensors", extra=("layout",))
    raise StudioError(f"a {name} file holds no pattern text; json, npz and safetensors files do")


def _importer(data: bytes):
    importer = TARGETS[_importer_name(data)].read
    assert importer is not None  # _importer_name gives only readable ones
    return importer


def _importer_name(data: bytes) -> str:
    """Which importer a file is for, from its first bytes and its schema."""
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06"):  # four bytes: a header length of safetensors can be "PK"
        stated = unpack(data)[0]
    elif data[:1] == b"{":
        stated = parsed(readable(data, json.MAX_BYTES))
    elif data[:1] == b"[":
        return "minference"
    elif data[8:9] == b"{":
        return "safetensors"
    else:
        raise StudioError(f"expected a json, npz or safetensors file of ours, got one that begins with {data[:8]!r}")
    stated_schema = stated.get("schema") if isinstance(stated, dict) else None
    for name, target in TARGETS.items():
        if target.read and stated_schema == schema(name):
            return name
    raise StudioError(f"expected a schema that can be read ({', '.join(_readable())}), got {str(stated_schema)[:80]!r}")


def _readable() -> list[str]:
    return [schema(name) for name, target in TARGETS.items() if target.read]


def _data(source: str | os.PathLike[str] | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        path = Path(source)
        if path.stat().st_size > MAX_BYTES:
            raise StudioError(f"expected a file of at most {MAX_BYTES:,} bytes, got {path.stat().st_size:,}")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        if isinstance(error, StudioError):
            raise
        raise StudioError(f"expected a readable file, got {getattr(error, 'strerror', None) or error}") from None


def _target(name: str) -> Target:
    if name in TARGETS:
        return TARGETS[name]
    close = difflib.get_close_matches(str(name), TARGETS, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"the targets are {', '.join(TARGETS)}"
    raise StudioError(f"unknown target {name!r}; {hint}")


def _request(pattern: Pattern, problem: Problem, block: int | tuple[int, int], layer: int | None) -> Request:
    if not isinstance(pattern, Pattern):
        raise StudioError(f"export takes a Pattern, got {type(pattern).__name__}; read text with parse()")
    if not isinstance(problem, Problem):
        raise StudioError(f"export takes a Problem, got {type(problem).__name__}; write Problem(q_len=...)")
    return Request(pattern, problem, block_shape(block), layer)
