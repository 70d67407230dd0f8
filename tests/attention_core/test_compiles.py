"""Every program still compiles for sm_90, on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

VARIANTS = "boxes", "gathered", "single_precision", "by_batch"
SHARED = 227 * 1024  # bytes that a program may have on an H100


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> list[dict]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, "-m", "tests.attention_core.compile_for_hopper"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_compiles_for_sm_90(programs, variant):
    mine = [p for p in programs if p["variant"] == variant]
    names = {p["program"] for p in mine}
    wanted = {"forward", "prepare", "backward_query"} | ({"backward_key"} if variant != "gathered" else set())
    assert wanted <= names
    assert all(p["sm_90"] and p["shared"] <= SHARED for p in mine)
    large = [p for p in mine if p["program"] in ("forward", "backward_query", "backward_key")]
    assert all(p["tensor_cores"] for p in large if variant != "single_precision")  # float32 is exact, without TF32
    assert all(p["boxes"] == (variant in ("boxes", "by_batch")) for p in large if variant != "single_precision")


def test_merging_programs_compile(programs):
    assert {"merge", "sum_parts"} <= {p["program"] for p in programs}


@pytest.mark.parametrize("variant", ["mask_lists", "mask_lists_by_key"])
def test_programs_that_make_lists_compile(programs, variant):
    mine = [p for p in programs if p["variant"] == variant]
    assert {p["program"] for p in mine} == {"count", "add_up", "place"}
    assert all(p["sm_90"] and p["shared"] <= SHARED for p in mine)


@pytest.mark.parametrize("variant", ["rows", "rows_of_odd_dims"])
def test_programs_that_move_rows_compile(programs, variant):
    mine = [p for p in programs if p["variant"] == variant]
    assert {p["program"] for p in mine} == {"pack", "put", "move", "add"}
    assert all(p["sm_90"] and p["shared"] <= SHARED for p in mine)
    assert all(p["sixteen_bytes"] for p in mine if variant == "rows")
