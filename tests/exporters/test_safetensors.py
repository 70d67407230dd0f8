"""safetensors: exact round trips, hostile files, today's file, and the safetensors library as a reader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import export, read, read_design
from tests.exporters.native import HEADERS, SAMPLE, designs, sample, survives

GOLDEN = Path(__file__).parent / "golden" / "safetensors.safetensors"


@settings(max_examples=40, deadline=None)
@given(designs)
def test_round_trip_is_exact(made):
    pattern, problem, block = made
    data = export(pattern, problem, block, to="safetensors").data
    assert read(data) == ps.lower(pattern, problem, block=block)
    design = read_design(data)
    assert (design.pattern, design.problem, design.block, design.layer) == (pattern, problem, block, None)


def test_the_library_reads_it(tmp_path):
    path = tmp_path / "layout.safetensors"
    path.write_bytes(sample("safetensors"))
    layout = ps.lower(SAMPLE[0], SAMPLE[1], block=SAMPLE[2])
    found = safetensors.numpy.load_file(path)
    for name in ("start", "length", "ref"):
        np.testing.assert_array_equal(found[name], getattr(layout.rows, name), strict=True)
    np.testing.assert_array_equal(found["bits"], layout.bits, strict=True)
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata()["pattern"] == str(SAMPLE[0])
        assert file.metadata()["hash"] == SAMPLE[0].hash


def parts() -> tuple[dict, bytes]:
    data = sample("safetensors")
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def made(header: object, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("name", [name for name in HEADERS if name not in ("schema of a kind", "text of a kind")])
def test_hostile_metadata_is_refused(name):
    spoil, message = HEADERS[name]
    header, data = parts()
    plain = ("schema", "pattern", "hash", "layout")
    fields = {k: v if k in plain else json.loads(v) for k, v in header["__metadata__"].items()}
    spoiled = {k: v if k in plain else json.dumps(v) for k, v in spoil(fields).items()}
    with pytest.raises(
        ps.StudioError, match=message.replace("expected a schema that can be read", "expected a file of schema")
    ):
        read(made(header | {"__metadata__": spoiled}, data))


def entry(**changes: object) -> bytes:
    header, data = parts()
    return made(header | {"bits": header["bits"] | changes}, data)


HOSTILE = {
    "cut in the header": (lambda: sample("safetensors")[:100], "truncated or of another type"),
    "cut in the data": (lambda: sample("safetensors")[:-1], "the file is truncated"),
    "bytes left over": (lambda: sample("safetensors") + b"1", "do not fill the file"),
    "an absurd header length": (lambda: b"\xff" * 7 + b"\x7f{", "can't hold the header"),
    "no JSON": (lambda: made(b"{]", b""), "expected JSON text"),
    "no metadata": (lambda: made({}, b""), "with metadata of strings"),
    "metadata of numbers": (lambda: made(b'{"__metadata__": {"a": 1}}', b""), "with metadata of strings"),
    "no tensors": (lambda: made({"__metadata__": {}}, b""), "missing or unknown"),
    "other dtype": (lambda: entry(dtype="F32"), "expected tensor bits with 2 dimension.s. of U8"),
    "other dimensions": (lambda: entry(shape=[5]), "expected tensor bits with 2"),
    "absurd shape": (lambda: entry(shape=[2**39, 2**39]), "not where the header says"),
    "huge numbers": (lambda: entry(shape=[10**400, 1]), "expected tensor bits"),
    "negative numbers": (lambda: entry(shape=[-1, -1]), "expected tensor bits"),
    "truths for numbers": (lambda: entry(data_offsets=[False, True]), "expected tensor bits"),
    "fractions": (lambda: entry(data_offsets=[0.5, 1]), "expected tensor bits"),
    "two tensors in one place": (lambda: _overlapping(), "do not fill the file"),
    "a list": (lambda: made(parts()[0] | {"bits": []}, parts()[1]), "expected tensor bits"),
}


def _overlapping() -> bytes:
    header, data = parts()
    return made(header | {"ref": header["start"]}, data)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name):
    make, message = HOSTILE[name]
    with pytest.raises(ps.StudioError, match=message):
        read(make())


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_truncated_and_damaged_files(data):
    whole = sample("safetensors")
    assert survives(whole[: data.draw(st.integers(0, len(whole) - 1))])
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(damaged))


def test_todays_file_loads():
    pattern, problem, block = SAMPLE
    layout = read(GOLDEN)
    assert isinstance(layout, ps.BlockLayout)
    assert (layout.problem, layout.block, layout.pattern_hash) == (problem, block, pattern.hash)
    # Pairs, not runs: a later lowering may cut the same mask otherwise.
    for head, mask in enumerate(ps.dense_mask(pattern, problem, block=block)):
        np.testing.assert_array_equal(layout.expand(head), mask)
