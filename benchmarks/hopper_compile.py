"""`python -m benchmarks.hopper_compile`: every Hopper program compiled for sm_90, without a GPU.

What can be learnt without a card: that the installed Triton still compiles them, shared memory, registers at entry,
bytes of stack (spills), ptxas's warnings that it serialises products (C75..), and faults of registers in what it made
(hopper_registers.py). A variant is a launch function called as in earnest, with Triton told that the target is an
H100 and stopped before the launch. One line of JSON a program.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is unset

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import pattern_studio as ps
from attention_core import Plan, plan
from attention_core.kernels.dropout import Dropout
from attention_core.kernels.hopper import launch, launch_backward

from .hopper_registers import faults

SHARED = 227 * 1024  # bytes that a program may have on an H100
PROGRAMS = ("forward", "backward", "backward_adding", "repair", "repair_query", "repair_key")


class Hopper:
    """What Triton asks of a driver before it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def variants() -> dict[str, Callable[[], None]]:
    """Launches by name: tiles, dtype and head dim of each kind of program."""
    tiles = {
        "full": _plan("dense", q_len=640),
        "band": _plan("causal & window(300, 0)", q_len=640),
        "bits": _plan("random(300, seed=1)", q_len=640),
        "split": _plan("dense", q_len=128, kv_len=12800),
        "runs_of_64": _plan("causal & window(300, 0)", (128, 64), q_len=640),
        "runs_of_16": _plan("causal & (window(300, 0) | sink(4))", (128, 16), q_len=640),
        "runs_of_8": _plan("window(3000, 0)", (128, 8), q_len=4096),
        "tall": _plan("causal & window(300, 0)", (256, 128), q_len=640),
    }
    dropout = Dropout(0.1, torch.zeros(1, dtype=torch.int64))
    made: dict[str, Callable[[], None]] = {}
    for dim in (128, 64):
        for name, ready in tiles.items():
            made[f"forward_{name}_{dim}"] = partial(_forward, ready, torch.bfloat16, dim)
            made[f"forward_claimed_{name}_{dim}"] = partial(_forward, ready, torch.bfloat16, dim, claimed=True)
        made[f"forward_band_fp16_{dim}"] = partial(_forward, tiles["band"], torch.float16, dim)
        for name in ("full", "band", "bits", "tall"):
            made[f"backward_{name}_{dim}"] = partial(_backward, tiles[name], torch.bfloat16, dim, False)
            made[f"backward_adding_{name}_{dim}"] = partial(_backward, tiles[name], torch.bfloat16, dim, True)
        made[f"backward_split_{dim}"] = partial(_backward, _plan("dense", q_len=2048), torch.float16, dim, False)
        for name in ("full", "band", "split", "runs_of_16"):
            made[f"forward_dropout_{name}_{dim}"] = partial(_forward, tiles[name], torch.bfloat16, dim, dropout)
        made[f"forward_dropout_ahead_band_{dim}"] = partial(_forward, tiles["band"], torch.bfloat16, dim, dropout, True)
        for name in ("full", "band", "bits"):
            made[f"backward_dropout_{name}_{dim}"] = partial(
                _backward, tiles[name], torch.bfloat16, dim, False, dropout
            )
    return made


def compiled(name: str, launch_it: Callable[[], None]) -> Iterator[dict]:
    """What the compiler tells of each program of a launch."""
    reports: list[dict] = []
    run = JITFunction.run

    def stop_before_launch(self, *args, grid, warmup, **options):
        with contextlib.redirect_stdout(io.StringIO()) as log:
            kernel = run(self, *args, grid=grid, warmup=True, **options)
        ptx = kernel.asm["ptx"]
        reports.append(
            {
                "variant": name, "program": self.__name__, "triton": triton.__version__,
                "sm_90": ".target sm_90" in ptx, "wgmma": ptx.count("wgmma.mma_async"),
                "boxes": ptx.count("cp.async.bulk.tensor"), "shared": kernel.metadata.shared,
                "overlapped": kernel.metadata.launch_pdl, "waits_first": _waits_first(ptx),
                **_resources(kernel.asm["cubin"]),
                "serialised": sorted(set(re.findall(r"C75\d\d", log.getvalue()))),
                # Portable programs move registers that are unset where they aren't used.
                "faults": faults(kernel.asm["cubin"]) if "cp.async.bulk.tensor" in ptx else [],
            }
        )  # fmt: skip

    JITFunction.run = stop_before_launch
    try:
        launch_it()
    finally:
        JITFunction.run = run
    yield from reports


def _plan(text: str, block: int | tuple[int, int] = 128, **problem: int) -> Plan:
    return plan(ps.lower(ps.parse(text), block=block, heads=2, **problem), device="cpu")


def _forward(
    ready: Plan, dtype: torch.dtype, dim: int, dropout: Dropout | None = None, ahead: bool | None = None,
    claimed: bool = False,
) -> None:  # fmt: skip
    problem = ready.problem
    q, k = (torch.zeros(1, 2, n, dim, dtype=dtype) for n in (problem.q_len, problem.kv_len))
    variant = launch.forward_variant(dim, dtype, dropout is not None)
    variant = replace(variant, ahead=variant.ahead if ahead is None else ahead, claimed_from=0 if claimed else 8)
    launch.attention_forward(q, k, k.clone(), ready.by_query, 0.1, variant, dropout)


def _backward(ready: Plan, dtype: torch.dtype, dim: int, adds: bool, dropout: Dropout | None = None) -> None:
    problem = ready.problem
    q, k = (torch.zeros(1, 2, n, dim, dtype=dtype) for n in (problem.q_len, problem.kv_len))
    lse = torch.zeros(1, 2, problem.q_len)
    launch_backward.attention_backward(
        q, k, k.clone(), q, lse, q, lse, ready.by_query, ready.by_key, 0.1, not adds, dropout=dropout
    )


def _waits_first(ptx: str) -> bool:
    """Whether a program waits for the one before it ahead of all that touches memory and of every way out."""
    wait, touch = ptx.find("griddepcontrol.wait"), re.search(r"\b(ld\.global|st\.global|atom|red|cp\.async|ret;)", ptx)
    return 0 <= wait < (touch.start() if touch else len(ptx))


def _resources(cubin: bytes) -> dict[str, int]:
    """Registers of a thread at entry and bytes of stack, by the disassembler that comes with Triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(re.search(rf"{key}:(\d+)", told)[1]) for name, key in (("registers", "REG"), ("stack", "STACK"))}


def main() -> None:
    """Compile the variants whose names contain one of the arguments, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="compile only variants whose names contain one of these")
    names = parser.parse_args().names
    driver.set_active(Hopper())
    for module in (launch, launch_backward):
        module.multiprocessors = lambda device: 132
    triton.knobs.nvidia.dump_ptxas_log = True
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder  # a program from the cache would come without its log
        for name, launch_it in variants().items():
            if not names or any(n in name for n in names):
                for report in compiled(name, launch_it):
                    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
