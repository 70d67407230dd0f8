"""The Hopper kernels drop the pairs of kernels/dropout.py: their compiled decision, executed statement by statement."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_core.kernels.dropout import Dropout

SEEDS = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 0x1234_5678_9ABC_DEF0]
WEIGHT = 0x3FC00000  # any bits but 0


@pytest.fixture(scope="module")
def programs() -> dict[str, list[str]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.attention_core.compile_dropout_mask"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def signed(x: int, bits: int) -> int:
    return x - 2**bits if x >> bits - 1 else x


OPERATIONS = {
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.lo": lambda a, b: a * b,
    "mul.wide.u32": lambda a, b: a * b,
    "xor": lambda a, b: a ^ b,
    "and": lambda a, b: a & b,
    "add": lambda a, b: a + b,
    "shr.u": lambda a, b: a >> b,
    "setp.lt.s32": lambda a, b: signed(a, 32) < signed(b, 32),
    "setp.ge.s32": lambda a, b: signed(a, 32) >= signed(b, 32),
    "setp.eq": lambda a, b: a == b,
    "selp": lambda a, b, chosen: a if chosen else b,
    "mov": lambda a: a,
    "cvt": lambda a: a,
}


def executed(statements: list[str], arguments: list[int], seed: int) -> int:
    """What the PTX stores as thread 0, its first argument pointing to `seed`."""
    values: dict[str, int] = {"%tid.x": 0}

    def value(operand: str, bits: int) -> int:
        if operand in values:
            return values[operand]
        return (int(operand[2:], 16) if operand.startswith("0f") else int(operand, 0)) & 2**bits - 1

    for statement in statements:
        name, rest = statement.split(None, 1)
        if name.startswith("@"):  # the one thread that stores
            assert values[name[1:]]
            name, rest = rest.split(None, 1)
        target, *operands = (x.strip() for x in re.split(r",\s*(?![^{]*\})", rest))
        if name.startswith("st.global"):
            return value(operands[0].strip("{} "), 32)
        if name.startswith("ld.param"):
            values[target] = arguments[int(re.search(r"param_(\d+)", operands[0])[1])]
        elif name.startswith("ld.global"):
            values[target.strip("{} ")] = seed
        else:
            bits = int(re.search(r"(\d+)$", name)[1])  # of the operands
            (operation,) = (f for known, f in OPERATIONS.items() if name.startswith(known))
            found = operation(*(value(x, bits) for x in operands))
            if target.startswith("{"):  # the halves of a long register, low first
                low, high = (x.strip() for x in target.strip("{}").split(","))
                values |= {low: found & 2**32 - 1, high: found >> 32}
            else:
                wide = name.startswith("mul.wide")
                to = int(re.search(r"[a-z](\d+)", name)[1]) if name.startswith("cvt") else 2 * bits if wide else bits
                values[target] = int(found) & 2**to - 1
    raise AssertionError("nothing is stored")


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
    for name, statements in programs.items():
        found = executed(statements, [0, 0, batch, head, row, key, threshold, WEIGHT], seed)
        assert found == (WEIGHT if wanted else 0), name
