"""json: exact round trips, hostile texts, and today's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import export, read, read_design
from tests.exporters.native import HEADERS, SAMPLE, designs, sample, survives, text

GOLDEN = Path(__file__).parent / "golden" / "json.json"


@settings(max_examples=50, deadline=None)
@given(designs)
def test_round_trip_is_exact(made):
    pattern, problem, block = made
    data = export(pattern, problem, block, to="json").data
    assert read(data) == pattern
    design = read_design(data)
    assert (design.pattern, design.problem, design.block, design.layer) == (pattern, problem, block, None)
    assert design.lower() == ps.lower(pattern, problem, block=block)


def test_layer_and_offset_are_kept():  # A2: the offset survives round trips
    pattern = ps.layers({0: ps.causal, 1: ps.dense})
    design = read_design(export(pattern, ps.Problem(3, 10, q_offset=-2), 8, to="json", layer=1).data)
    assert design.layer == 1
    assert design.lower() == ps.lower(pattern, ps.Problem(3, 10, q_offset=-2), block=8, layer=1)


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(name):
    spoil, message = HEADERS[name]
    with pytest.raises(ps.StudioError, match=message):
        read(text(spoil(json.loads(sample("json")))))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "got one that begins with b''"),
        (b"{", "expected JSON text"),
        (b'{"schema": NaN}', "NaN is no JSON"),
        (b'{"a":' * 100_000, "expected JSON text"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "expected JSON text|expected a schema"),
        (b"{" + b" " * (33 << 20) + b"}", "expected a file of at most 33,554,432 bytes, got 34,603,010"),
        (b'{"schema": "\xff"}', "expected JSON text"),
    ],
)
def test_other_texts_are_refused(data, message):
    with pytest.raises(ps.StudioError, match=message):
        read(data)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2000))
@example(0)
def test_truncated_files_are_refused(length):
    data = sample("json")
    if length < len(data.rstrip()):
        assert survives(data[:length])


def test_paths_and_their_faults(tmp_path):
    path = tmp_path / "pattern.json"
    path.write_bytes(sample("json"))
    assert read(path) == read(str(path)) == SAMPLE[0]
    for bad in (tmp_path / "none.json", tmp_path, "a\0b"):
        with pytest.raises(ps.StudioError, match="expected a readable file"):
            read(bad)


def test_todays_file_loads():
    assert read(GOLDEN) == SAMPLE[0]
    assert GOLDEN.read_bytes() == sample("json")
