"""Exporters and importers: `export`, `check`, `read`, the doctor, and torch's BlockMask.

To add an exporter: a file with a `TARGET`, listed by hand in `_registry.py`. Exporters are siblings and never import
each other.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout
from . import json, safetensors
from ._block_mask import to_block_mask
from ._bundle import MAX_BYTES, parsed, unpack
from ._frame import Export, Fidelity, Target, readable
from ._native import Design, design, schema
from ._registry import TARGETS, check, export, targets
from .doctor import Diagnosis, doctor

__all__ = [
    "TARGETS",
    "Design",
    "Diagnosis",
    "Export",
    "Fidelity",
    "Target",
    "check",
    "doctor",
    "export",
    "read",
    "read_design",
    "targets",
    "to_block_mask",
]


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
        with Path(source).open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_size > MAX_BYTES:
                raise StudioError(f"expected a file of at most {MAX_BYTES:,} bytes, got {about.st_size:,}")
            if stat.S_ISREG(about.st_mode):
                return file.read()
            data = file.read(MAX_BYTES + 1)  # a pipe or a device, which says of itself that it has 0 bytes
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        if isinstance(error, StudioError):
            raise
        raise StudioError(f"expected a readable file, got {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise StudioError(f"expected a file of at most {MAX_BYTES:,} bytes, got one without an end")
    return data
