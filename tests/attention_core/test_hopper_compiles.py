"""Hopper programs still compile for sm_90, on a machine without a GPU, and next to nothing is spilled.

A few of each kind; all of them are compiled by `python -m benchmarks.hopper_compile`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from attention_core.kernels.hopper.serves import TRITONS

VARIANTS = (
    "forward_runs_of_16_64",
    "forward_claimed_band_64",
    "backward_full_64",
    "backward_adding_full_64",
    "forward_dropout_full_64",
    "backward_dropout_full_64",
)
SHARED = 227 * 1024  # bytes that a program may have on an H100
SPILLED = 128  # bytes of stack that are allowed: scalars of the outer loop, never sums or scores


@pytest.fixture(scope="module")
def programs() -> list[dict]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.hopper_compile", *VARIANTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("variant", VARIANTS)
def test_compiles_for_sm_90(programs, variant):
    mine = [p for p in programs if p["variant"] == variant]
    large = [p for p in mine if p["program"] in ("forward", "backward", "backward_adding")]
    assert len(large) == (2 if variant in ("backward_full_64", "backward_dropout_full_64") else 1)
    assert all(p["sm_90"] and p["shared"] <= SHARED for p in mine)
    assert all(p["wgmma"] and p["boxes"] and p["stack"] <= SPILLED and not p["serialised"] for p in large), large
    assert [fault for p in mine for fault in p["faults"]] == []


def test_a_program_that_begins_early_waits_before_all_else(programs):
    early = {p["program"] for p in programs if p["overlapped"]}
    assert early == {"repair", "backward", "backward_adding", "finish_queries", "repair_query", "repair_key"}
    assert [p["program"] for p in programs if p["waits_first"] != p["overlapped"]] == []


def test_the_installed_triton_is_one_that_is_served(programs):
    assert {".".join(p["triton"].split(".")[:2]) for p in programs} <= set(TRITONS)
    assert any(p["program"].startswith("repair") for p in programs)
