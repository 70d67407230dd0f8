"""The sums of dQ that the Hopper backward adds up: what leaves registers in their order comes back as rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention_core.kernels.hopper.backward_adding import finish_queries

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def in_memory(dq: torch.Tensor) -> torch.Tensor:
    """dq [batch * heads, rows, dim], rows whole parts of 64, in the order that 128 threads hold a part [64, 64] in.

    Thread t of a warpgroup holds of rows t // 32 * 16 + t % 32 // 4 and 8 below the columns 8 i + t % 4 * 2 and the
    next (PTX manual, fragment D of wgmma m64nNk16). For either row and two neighbouring i it stores 4 numbers.
    """
    heads, rows, dim = dq.shape
    parts = dq.view(heads, rows // 64, 64, dim // 64, 64).transpose(2, 3).reshape(-1, 64, 64)
    memory = torch.empty(len(parts), 8, 128, 4)
    thread = torch.arange(128)
    for below in range(2):
        for pair in range(4):
            row = thread // 32 * 16 + thread % 32 // 4 + 8 * below
            for n in range(4):
                column = 8 * (2 * pair + n // 2) + thread % 4 * 2 + n % 2
                memory[:, below * 4 + pair, :, n] = parts[:, row, column]
    return memory.flatten()


@pytest.mark.parametrize(("dim", "q_len"), [(64, 128), (128, 64), (128, 100)])
def test_sums_come_back_as_rows(dim, q_len):
    whole = (q_len + 63) // 64 * 64
    dq = torch.randn(3, whole, dim)
    found = torch.full((3, q_len, dim), torch.nan, dtype=torch.float16, device=DEVICE)
    flag = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    finish_queries[(3 * whole // 64 * (dim // 64),)](in_memory(dq).to(DEVICE), found, flag, 0.5, q_len, D=dim)
    assert torch.equal(found.cpu(), (dq[:, :q_len] * 0.5).half())
    assert not flag


def test_a_sum_that_is_not_finite_raises_the_flag():
    dq = torch.zeros(1, 64, 64)
    dq[0, 5, 7] = torch.inf
    flag = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    found = torch.empty(1, 64, 64, dtype=torch.float16, device=DEVICE)
    with np.errstate(invalid="ignore"):  # 0 times infinity, by the interpreter's numpy
        finish_queries[(1,)](in_memory(dq).to(DEVICE), found, flag, 1.0, 64, D=64)
    assert flag
