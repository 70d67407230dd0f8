"""npz: exact round trips, hostile files, today's file, and numpy as a reader."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import export, read, read_design
from pattern_studio.exporters._bundle import pack, unpack
from pattern_studio.exporters._native import digest
from tests.exporters.native import HEADERS, SAMPLE, designs, sample, survives

GOLDEN = Path(__file__).parent / "golden" / "npz.npz"


@settings(max_examples=40, deadline=None)
@given(designs)
def test_round_trip_is_exact(made):
    pattern, problem, block = made
    data = export(pattern, problem, block, to="npz").data
    layout = ps.lower(pattern, problem, block=block)
    found = read(data)
    assert found == layout
    assert found.pattern_hash == pattern.hash
    for mine, theirs in ((layout.rows, found.rows), (layout.columns, found.columns)):
        for name in ("indptr", "start", "length", "kind", "ref"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), strict=True)
    design = read_design(data)
    assert (design.pattern, design.problem, design.block) == (pattern, problem, block)


def test_equal_input_gives_equal_bytes_and_numpy_reads_them():
    assert sample("npz") == sample("npz")
    with np.load(io.BytesIO(sample("npz")), allow_pickle=False) as file:
        layout = ps.lower(SAMPLE[0], SAMPLE[1], block=SAMPLE[2])
        np.testing.assert_array_equal(file["bits"], layout.bits, strict=True)
        assert b'"schema":"pattern-studio/npz"' in file["header"].tobytes()


def test_arrays_are_the_readers_own():
    layout = read(sample("npz"))
    assert isinstance(layout, ps.BlockLayout)
    assert layout.rows.start.flags.writeable


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(name):
    spoil, message = HEADERS[name]
    header, parts = unpack(sample("npz"))
    with pytest.raises(ps.StudioError, match=message):
        read(pack(spoil(header), parts))


def resealed(**changes: np.ndarray | None) -> bytes:
    """The sample with arrays replaced and the digest made to fit."""
    header, parts = unpack(sample("npz"))
    parts = {name: part for name, part in (parts | changes).items() if part is not None}
    if all(name in parts for name in ("head_group", "bits")):
        header["layout"] = digest(header, parts)
    return pack(header, parts)


PARTS = unpack(sample("npz"))[1]
LONG = np.arange(3, dtype=np.int64)
HOSTILE = {
    "other contents": (
        lambda: pack(unpack(sample("npz"))[0], PARTS | {"ref": PARTS["ref"] + 1}),
        "the SHA-256 that it states",
    ),
    "no array": (lambda: resealed(bits=None), "missing or unknown: bits"),
    "one array more": (lambda: resealed(more=LONG), "missing or unknown: more"),
    "other dtype": (
        lambda: resealed(start=PARTS["start"].astype(np.int64)),
        r"start with 1 .* of int32, got 1 of int64",
    ),
    "other byte order": (lambda: resealed(start=PARTS["start"].astype(">i4")), "array start with 1"),
    "other dimensions": (lambda: resealed(bands=LONG), r"array bands with 2 dimension\(s\) of int64, got 1"),
    "objects": (lambda: _with_member("bits", _npy(np.zeros(1), descr="|O")), "plain row-major numbers|no .npy array"),
    "fields": (lambda: _with_member("bits", _npy(np.zeros(2, "u1,u1"))), "plain row-major numbers"),
    "absurd shape": (lambda: _with_member("bits", _npy(np.zeros(1, "u1"), shape=(2**40, 2**40))), "claims shape"),
    "negative shape": (
        lambda: _with_member("bits", _npy(np.zeros(1, "u1"), shape=(-1, 1))),
        "claims shape|no .npy array",
    ),
    "a pickle": (lambda: _with_member("bits", pickle.dumps([1])), "is no .npy array"),
    "later .npy": (lambda: _with_member("bits", b"\x93NUMPY\x03\x00" + bytes(20)), "is no .npy array"),
    "other groups": (lambda: resealed(head_group=PARTS["head_group"] + 1), "expected indptr of 17 entries"),
    "negative groups": (lambda: resealed(head_group=PARTS["head_group"] - 9), "head groups of at least 0"),
    "huge group": (lambda: resealed(head_group=np.array([0, 1, 2**31 - 1], "i4")), "expected indptr of"),
    "falling indptr": (lambda: resealed(indptr=PARTS["indptr"][::-1].copy()), "indptr rising"),
    "huge indptr": (lambda: resealed(indptr=PARTS["indptr"] * 2**40), "indptr rising"),
    "runs apart": (lambda: resealed(start=np.zeros_like(PARTS["start"])), "overlapping runs"),
    "runs beyond": (lambda: resealed(length=PARTS["length"] + 100), "runs inside 9 key blocks"),
    "empty runs": (lambda: resealed(length=PARTS["length"] * 0), "run lengths of at least 1"),
    "unknown kind": (lambda: resealed(kind=PARTS["kind"] + 7), "kinds 1, 2 or 3"),
    "ref beyond": (lambda: resealed(ref=PARTS["ref"] + 1000), "refs below"),
    "one ref less": (lambda: resealed(ref=PARTS["ref"][1:].copy()), "one size"),
    "masks of another size": (lambda: resealed(bits=PARTS["bits"][:, 1:].copy()), "masks of block_q"),
    "bands the wrong way": (lambda: resealed(bands=PARTS["bands"][:, ::-1].copy()), "expected bands with"),
    "endless bands": (lambda: resealed(bands=np.full_like(PARTS["bands"], 2**62)), "expected bands with"),
    "pairs beyond the end": (lambda: resealed(bits=np.full_like(PARTS["bits"], 255)), "beyond q_len or kv_len"),
    "no header": (lambda: _zip({"a.npy": _npy(LONG)}), "an .npz file with a header"),
    "a header of numbers": (lambda: _zip({"header.npy": _npy(LONG)}), "a header of at most"),
    "twice the same name": (lambda: _zip([("header.npy", b""), ("header.npy", b"")]), "two members of one name"),
    "compressed": (lambda: _zip({"header.npy": _npy(LONG)}, zipfile.ZIP_DEFLATED), "stored members, got compressed"),
    "no zip": (lambda: b"PK\x03\x04" + bytes(100), "a damaged or other one"),
}


def _npy(array: np.ndarray, shape: tuple[int, ...] | None = None, descr: str | None = None) -> bytes:
    """An .npy member whose header may lie."""
    out = io.BytesIO()
    header = {
        "descr": descr or np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": shape or array.shape,
    }
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + array.tobytes()


def _zip(members: dict[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    pairs = members.items() if isinstance(members, dict) else members
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in pairs:
            file.writestr(zipfile.ZipInfo(name), data, compress_type=compression)
    return out.getvalue()


def _with_member(name: str, data: bytes) -> bytes:
    header, parts = unpack(sample("npz"))
    members = {f"{n}.npy": _npy(p) for n, p in parts.items()}
    members["header.npy"] = _npy(np.frombuffer(json.dumps(header).encode(), "u1"))
    return _zip(members | {f"{name}.npy": data})


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name):
    make, message = HOSTILE[name]
    with pytest.raises(ps.StudioError, match=message):
        read(make())


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_truncated_and_damaged_files(data):
    whole = sample("npz")
    assert survives(whole[: data.draw(st.integers(0, len(whole) - 1))])
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(2, len(whole) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(damaged))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data):
    for start in (b"PK\x03\x04", b"{", b"\x10" + bytes(7) + b"{", b""):
        assert survives(start + data)


def test_todays_file_loads():
    pattern, problem, block = SAMPLE
    layout = read(GOLDEN)
    assert isinstance(layout, ps.BlockLayout)
    assert (layout.problem, layout.block, layout.pattern_hash) == (problem, block, pattern.hash)
    # Pairs, not runs: a later lowering may cut the same mask otherwise.
    for head, mask in enumerate(ps.dense_mask(pattern, problem, block=block)):
        np.testing.assert_array_equal(layout.expand(head), mask)
