"""Decisions of masked steps compiled for sm_90, as the Hopper kernels make them, on a machine without a GPU.

Run as a program by test_hopper_masks.py with a JSON list of [n, granule, block_q, block_k, has_bits, by_key]. Prints
one line of JSON: the PTX of each.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import json
import os
import sys

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is unset

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from attention_core.kernels.hopper.masks import allowed_pairs, mask_ahead
from benchmarks.hopper_compile import Hopper


@gluon.jit(do_not_specialize=["step", "first", "length"])
def decide(units, low, high, bits, masks, out, step, first, length, N: gl.constexpr, GRANULE: gl.constexpr,
           BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, BY_KEY: gl.constexpr):  # fmt: skip
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    walked = (units, low, high, bits, masks)
    ahead = mask_ahead(walked, step, first, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, BY_KEY)
    allowed = allowed_pairs(ahead, walked, step, first, length, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, BY_KEY)
    own = gl.arange(0, 64, layout=gl.SliceLayout(1, S))
    n = gl.arange(0, N, layout=gl.SliceLayout(0, S))
    gl.store(out + (own[:, None] * N + n[None, :]), allowed.to(gl.int32))


def main() -> None:
    driver.set_active(Hopper())
    numbers, octets = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.uint8)
    told = []
    for n, granule, block_q, block_k, has_bits, by_key in json.loads(sys.argv[1]):
        masks = numbers if has_bits and granule >= n else octets  # words.py
        arguments = numbers, numbers, numbers, numbers, masks, numbers, 1, 2, 3
        sizes = n, granule, block_q, block_k, has_bits, by_key
        told.append(decide.warmup(*arguments, *sizes, grid=(1,), num_warps=4).asm["ptx"])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
