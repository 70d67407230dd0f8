"""The Hopper kernels drop the pairs of kernels/dropout.py: their compiled decision, executed statement by statement."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_core.kernels.dropout import Dropout

from .ptx import Memory, Program

SEEDS = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 0x1234_5678_9ABC_DEF0]
WEIGHT = 0x3FC00000  # any bits but 0


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.attention_core.compile_dropout_mask"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return {name: Program(ptx) for name, ptx in json.loads(done.stdout.splitlines()[-1]).items()}


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(SEEDS) | st.integers(0, 2**63 - 1),
    st.tuples(*[st.integers(0, 2**31 - 1)] * 4),
    st.floats(1e-12, 1, exclude_max=True),
)
def test_compiled_decisions_are_bit_identical(programs, seed, place, p):
    batch, head, row, key = place
    dropout = Dropout(p, torch.tensor([seed]))
    threshold = dropout.threshold - 2**31 & 2**32 - 1
    wanted = dropout.weights(*(torch.tensor([x]) for x in place), torch.float32).item() > 0
    for name, program in programs.items():
        out = np.full(1, -1, np.int32)
        memory = Memory([np.array([seed]), out])
        program.run(memory, [*memory.addresses, batch, head, row, key, threshold, WEIGHT], threads=32)
        assert out[0] == (WEIGHT if wanted else 0), name
