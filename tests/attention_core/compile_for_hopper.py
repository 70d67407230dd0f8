"""Compile for sm_90, without a GPU, what the launch functions would launch. Run as a program by test_compiles.py.

Triton is told that the target is an H100 and asked to stop before launching, so that arguments, their
specialisation and tile shapes are those of real calls. Prints a line of JSON for each program.
"""

from __future__ import annotations

import json
import os
import re

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is unset

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import pattern_studio as ps
from attention_core import Plan, plan, plan_from_mask
from attention_core.kernels.dropout import Dropout
from attention_core.kernels.triton import key_rows, launch
from attention_core.kernels.triton.lists_from_mask import lists_from_mask


class Hopper:
    """What Triton asks of a driver before it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def compiled(variant: str, launch_it) -> None:
    run = JITFunction.run

    def stop_before_launch(self, *args, grid, warmup, **options):
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        ptx = kernel.asm["ptx"]
        report = {
            "variant": variant,
            "program": self.__name__,
            "sm_90": ".target sm_90" in ptx,
            "boxes": "cp.async.bulk.tensor" in ptx,
            "tensor_cores": "wgmma" in ptx or "mma.sync" in ptx,
            "sixteen_bytes": bool(
                re.search(r"ld\.global[.\w]*\.v4\.b32", ptx) and re.search(r"st\.global[.\w]*\.v4\.b32", ptx)
            ),
            "shared": kernel.metadata.shared,
        }
        print(json.dumps(report), flush=True)

    JITFunction.run = stop_before_launch
    try:
        launch_it()
    finally:
        JITFunction.run = run


def attend(
    ready: Plan, dtype: torch.dtype, dim: int, batch: int = 1, transposed: bool = True, dropout: Dropout | None = None
) -> None:
    problem = ready.problem
    q, k, v = (torch.zeros(batch, 2, n, dim, dtype=dtype) for n in (problem.q_len, problem.kv_len, problem.kv_len))
    out, lse = launch.attention_forward(q, k, v, ready.by_query, 0.1, dropout)
    by_key = ready.by_key if transposed else None
    launch.attention_backward(q, k, v, out, lse, out, lse, ready.by_query, by_key, 0.1, dropout)


def move_rows(dim: int, value_dim: int, dtype: torch.dtype) -> None:
    """Pack rows of k and v, in order and at slots, put such tables in place, move rows both ways, and add tables."""
    k, v = torch.zeros(2, 4, 640, dim, dtype=dtype), torch.zeros(2, 4, 640, value_dim, dtype=dtype)
    index = torch.arange(96)
    for slots, count in ((None, 96), (index, 128)):
        table = key_rows.pack_rows(k, v, index, slots, count, dtype)
        key_rows.put_rows(table, slots, index, k, v)
    for take in (False, True):
        key_rows.move_rows(k, v, torch.arange(4 * 640), take, k, v)
    key_rows.add_rows(table, index, index, torch.tensor([0, 96, 96]), k, v)


def main() -> None:
    driver.set_active(Hopper())
    launch._has_copy_engine = lambda device: True
    text = "causal & (window(300, 0) | sink(4) | random(9, seed=1))"
    dropout = Dropout(0.1, torch.zeros(1, dtype=torch.int64))

    def lowered(block: int | tuple[int, int], text: str = text, **problem: int) -> Plan:
        return plan(ps.lower(ps.parse(text), block=block, **problem))

    boxes = lowered(128, "causal & window(300, 0)", q_len=640, heads=2)
    compiled("boxes", lambda: attend(boxes, torch.bfloat16, 128))
    gathered = lowered((64, 1), q_len=640, heads=2)
    compiled("gathered", lambda: attend(gathered, torch.float16, 64, transposed=False, dropout=dropout))
    long = lowered((16, 64), "dense", q_len=16, kv_len=3000, heads=2)
    compiled("single_precision", lambda: attend(long, torch.float32, 16))
    compiled("rows", lambda: move_rows(64, 64, torch.bfloat16))
    compiled("rows_of_odd_dims", lambda: move_rows(24, 5, torch.float32))
    mask = torch.ones(2, 2, 5, 5, dtype=torch.bool)
    by_batch = plan_from_mask(mask, q_len=300, kv_len=300, block=64, causal=True)
    compiled("by_batch", lambda: attend(by_batch, torch.bfloat16, 64, batch=2, dropout=dropout))
    for transposed in (False, True):
        side = by_batch.source.side(transposed)
        name = "mask_lists_by_key" if transposed else "mask_lists"
        compiled(name, lambda side=side: lists_from_mask(mask, side, edge=2**30, ctas=264, shortest=8))


if __name__ == "__main__":
    main()
