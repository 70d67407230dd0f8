"""Named arrays and a JSON header in one .npz file; equal input gives equal bytes, and reading trusts nothing.

Members are stored, not compressed, so that no array can be larger than the file itself, and nothing is ever unpickled.
`numpy.load(path)` reads the files too: one entry per array, and `header` with the JSON text as uint8.

Source: the .npy format, version 1.0 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import StudioError

MAX_BYTES = 4 << 30  # of a file that is read: it is held in memory as a whole
MAX_HEADER = 16 << 20  # bytes of the JSON header
MAX_MEMBERS = 10_000  # the list of a zip file's members takes ten times its place in the file
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date that a zip file can state


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of an .npz file with the header and the arrays.

    >>> names, parts = unpack(pack({"schema": "x"}, {"a": np.arange(3)}))
    >>> names, parts["a"].tolist()
    ({'schema': 'x'}, [0, 1, 2])
    """
    text = json.dumps(header, separators=(",", ":")).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, array in {"header": np.frombuffer(text, np.uint8), **arrays}.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
    return out.getvalue()


def unpack(source: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """The header (any JSON value) and the arrays of such a file, copied; StudioError for anything else."""
    if len(source) > MAX_BYTES:
        raise StudioError(f"expected a file of at most {MAX_BYTES:,} bytes, got {len(source):,}; is it another format?")
    members = members_of(source)
    if "header" not in members:
        raise StudioError("expected an .npz file with a header, got one without; export it again with Pattern Studio")
    text = npy("header", members.pop("header"))
    if text.dtype != np.uint8 or text.ndim != 1 or len(text) > MAX_HEADER:
        raise StudioError(f"expected a header of at most {MAX_HEADER:,} bytes of text; export the file again")
    return parsed(text.tobytes()), {name: npy(name, data) for name, data in members.items()}


def parsed(text: bytes) -> Any:
    """JSON from untrusted bytes."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise StudioError(f"expected JSON text, got something else ({str(error)[:80]}); is the file damaged?") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def members_of(source: bytes, most: int = 0) -> dict[str, bytes]:
    """The members of a zip file by name, without the suffix .npy; StudioError for anything else.

    Members are stored; compressed ones are read where they state and have at most `most` bytes together.
    """
    # Counted before the list is read; nothing else in a file has these four bytes so often.
    if (count := source.count(b"PK\x01\x02")) > MAX_MEMBERS:
        raise StudioError(f"expected an .npz file of at most {MAX_MEMBERS:,} members, got {count:,}; get it again")
    try:
        with zipfile.ZipFile(io.BytesIO(source)) as file:
            infos = file.infolist()
            if any(info.filename.endswith(".pkl") for info in infos):
                raise StudioError(
                    "expected an .npz file, got a zip file with a pickle, as torch.save writes it; it is not opened, "
                    "since a pickle can run code: save the arrays with numpy.savez or safetensors"
                )
            plain = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) if most else (zipfile.ZIP_STORED,)
            if any(info.compress_type not in plain or info.flag_bits & 1 for info in infos):
                raise StudioError(
                    "expected an .npz file with stored members, got compressed or locked ones; save it with numpy.savez"
                )
            stated = sum(info.file_size for info in infos)
            packed = any(info.compress_type != zipfile.ZIP_STORED for info in infos)
            if packed and stated > most:
                raise StudioError(
                    f"expected an .npz file that unpacks to at most {most:,} bytes, got one that states {stated:,}; "
                    "save less, or uncompressed with numpy.savez"
                )
            if not packed and stated > len(source):
                raise StudioError("the .npz file claims more data than it has: it is damaged; export it again")
            names = [info.filename.removesuffix(".npy") for info in infos]
            if len(set(names)) < len(names):
                raise StudioError("the .npz file has two members of one name; export it again")
            return {name: _content(file, info) for name, info in zip(names, infos, strict=True)}
    except StudioError:
        raise
    except Exception as error:  # a zip reader meets hostile bytes: whatever it stumbles over, the file is no good
        raise StudioError(
            f"expected an .npz file, got a damaged or other one ({str(error)[:80]}); get it again"
        ) from None


def _content(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """What a member holds. Read to its stated size: without a number all of it is unpacked before it is cut."""
    with file.open(info) as member:
        return member.read(info.file_size) + member.read(1)  # the last read meets the end, and checks the checksum


def npy(name: str, data: bytes) -> NDArray[Any]:
    """The array in the bytes of an .npy file, copied; StudioError, which calls it by its name, for anything else."""
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("not .npy version 1.0")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # the header is Python text from an untrusted file, read by numpy
        raise StudioError(f"member {short(name)} is no .npy array ({str(error)[:80]}); get the file again") from None
    payload = data[stream.tell() :]
    if dtype.hasobject or dtype.fields is not None or fortran or dtype.itemsize == 0:
        order, remedy = (", column by column", "numpy.ascontiguousarray") if fortran else ("", "numpy.asarray")
        raise StudioError(
            f"member {short(name)} is of dtype {short(str(dtype))}{order}: plain row-major numbers are read, never "
            f"objects, which are pickles; convert it with {remedy}"
        )
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(payload):
        raise StudioError(
            f"member {short(name)} claims shape {short(shape)} of {dtype}, but has {len(payload)} bytes; get it again"
        )
    # Copied: an array over the file's bytes would be read-only, which torch warns of.
    return np.frombuffer(payload, dtype).reshape(shape).copy()
