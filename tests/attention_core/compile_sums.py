"""Places in a part of dQ's sums compiled for sm_90, without a GPU. Run by test_hopper_sums.py; prints PTX."""

from __future__ import annotations

import os

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is unset

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from attention_core.kernels.hopper.sums import PART, place_in_part
from benchmarks.hopper_compile import Hopper


@gluon.jit
def places(rows, columns):
    n = gl.arange(0, PART, layout=gl.BlockedLayout([4], [32], [4], [0]))
    row, column = place_in_part(n)
    gl.store(rows + n, row)
    gl.store(columns + n, column)


def main() -> None:
    driver.set_active(Hopper())
    numbers = torch.zeros(1, dtype=torch.int32)
    print(places.warmup(numbers, numbers, grid=(1,), num_warps=4).asm["ptx"])


if __name__ == "__main__":
    main()
