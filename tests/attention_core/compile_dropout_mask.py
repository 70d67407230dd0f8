"""One pair's decision compiled for sm_90 by the portable and by the Hopper function, on a machine without a GPU.

Run as a program by test_dropout_mask.py. Prints one line of JSON: the PTX of each.
"""

from __future__ import annotations

import json
import os

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is unset

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from attention_core.kernels.hopper.dropout_mask import kept, seed_halves
from attention_core.kernels.triton.primitives import dropout_weights
from benchmarks.hopper_compile import Hopper


@triton.jit(do_not_specialize=["batch", "head", "row", "key", "threshold"])
def portable(seed, out, batch, head, row, key, threshold, weight):
    tl.store(out, dropout_weights(seed, batch, head, row, key, threshold, weight))


@gluon.jit(do_not_specialize=["batch", "head", "row", "key", "threshold"])
def hopper(seed, out, batch, head, row, key, threshold, weight):
    gl.store(out, gl.where(kept(seed_halves(seed), threshold, batch, head, row, key), weight, 0.0))


def main() -> None:
    driver.set_active(Hopper())
    seed, out = torch.zeros(1, dtype=torch.int64), torch.zeros(1)
    told = {
        name: program.warmup(seed, out, 1, 2, 3, 4, 5, 1.5, grid=(1,), num_warps=1).asm["ptx"]
        for name, program in (("portable", portable), ("hopper", hopper))
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
