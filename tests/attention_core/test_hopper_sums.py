"""The sums of dQ that the Hopper backward adds up: what leaves registers in their order comes back as rows."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from .ptx import Memory, Program

PART = 4096


def test_a_part_is_read_in_the_order_in_which_128_threads_hold_it():
    """Thread t of a warpgroup has of rows t // 32 * 16 + t % 32 // 4 and 8 below the columns 8 i + t % 4 * 2 and next.

    So the PTX manual has it (fragment D of wgmma m64nNk16). For either row and two neighbouring i a thread stores
    4 numbers, beside those of its neighbours. The compiled place of each number is executed and compared.
    """
    rows, columns = np.full(PART, -1, np.int32), np.full(PART, -1, np.int32)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.attention_core.compile_sums"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    memory = Memory([rows, columns])
    Program(done.stdout).run(memory, [*memory.addresses, 0, 0], threads=128)

    thread = np.arange(128)
    for below in range(2):
        for pair in range(4):
            for n in range(4):
                at = (below * 4 + pair) * 512 + thread * 4 + n
                assert (rows[at] == thread // 32 * 16 + thread % 32 // 4 + 8 * below).all()
                assert (columns[at] == 8 * (2 * pair + n // 2) + thread % 4 * 2 + n % 2).all()
