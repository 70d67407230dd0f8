"""Repeated launches hand over what Triton would, and what is kept goes neither into copies nor into another process."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels import launcher
from tests.attention_core.inputs import DEVICE

CALLS = {  # programs of each
    "work_table": 2,
    "hopper": 3,
    "hopper_backward": 10,
    "hopper_dropout": 3,
    "hopper_backward_dropout": 11,
    "portable_boxes": 1,
    "portable_split": 2,
    "portable_dropout": 1,
    "backward": 6,
    "backward_gathered": 2,
    "rows_packed": 1,
    "rows_packed_at_slots": 1,
    "rows_put": 1,
    "rows_moved": 1,
    "rows_added": 1,
}


@pytest.fixture(scope="module")
def reports() -> dict[str, dict]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.attention_core.launch_recorder"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {report["call"]: report for report in found}


@pytest.mark.parametrize("call", CALLS)
def test_a_repeated_call_hands_over_what_triton_would(reports, call):
    report = reports[call]
    assert report["programs"] == CALLS[call]
    assert report["repeated"]
    assert report["same"] == [True] * CALLS[call], report


@pytest.mark.parametrize("call", CALLS)
def test_no_tensor_of_a_call_is_held(reports, call):
    assert reports[call]["held"] == 0


def test_launch_hooks_are_told_of_every_launch(reports):
    assert reports["hooked"] == {"call": "hooked", "with": [True] * 3, "without": [False] * 3}


class Owner:
    """Something with tensors."""


def test_copies_and_pickles_keep_no_launches():
    owner, x = Owner(), torch.zeros(1)
    kept = vars(owner)["_launches"] = launcher._Kept()
    kept["kind"] = (lambda: None, x.data_ptr())  # neither may leave the process
    for other in (copy.deepcopy(kept), copy.copy(kept), pickle.loads(pickle.dumps(kept))):
        assert type(other) is launcher._Kept
        assert not other


def test_a_plan_that_has_run_is_copied_and_pickled():
    ready = plan(ps.lower(ps.parse("causal"), q_len=20, block=16), device=DEVICE)
    q = torch.randn(1, 1, 20, 16, device=DEVICE, requires_grad=True)
    wanted = block_sparse_attention(q, q, q, ready, backend="triton")
    wanted.sum().backward()
    for other in (copy.deepcopy(ready), pickle.loads(pickle.dumps(ready))):
        assert torch.equal(block_sparse_attention(q, q, q, other, backend="triton"), wanted)


def test_what_the_interpreter_runs_is_not_kept():
    calls: list[tuple] = []

    class Program:
        def __getitem__(self, grid):
            return lambda *args, **constants: calls.append((grid, args, constants))

    owner, x = Owner(), torch.zeros(2)
    for _ in range(2):
        launcher.launched(owner, "kind", (x,), (), lambda launch, x: launch(Program(), 3, x, 5, N=7))
    assert len(calls) == 2
    assert not vars(owner)["_launches"]
    grid, (given, five), constants = calls[1]
    assert (grid, five, constants) == ((3,), 5, {"N": 7})
    assert given.data_ptr() == x.data_ptr()


def test_scratch_of_nothing_is_one_tensor():
    cpu = torch.device("cpu")
    assert launcher.scratch(0, cpu) is launcher.scratch(0, cpu)
    assert launcher.scratch(3, cpu).shape == (3,)
    assert launcher.scratch(3, cpu).dtype == torch.float32
