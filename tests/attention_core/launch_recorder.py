"""What is handed to compiled programs, on a machine without a GPU. Run as a program by test_launcher.py.

Triton compiles for an H100 and launches as in earnest, by a driver whose last step notes what it was given. Each call
of `launched` is made three times: first as it is, then with other tensors, which our launcher hands over by what it
kept, then with these by Triton alone. Prints a line of JSON for each. With the argument `time` it prints instead how
long block_sparse_attention takes on this machine's CPU, without and with what is kept.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is unset

import torch
from torch import Tensor
from triton import knobs
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver

import pattern_studio as ps
from attention_core import Plan, block_sparse_attention, plan
from attention_core.kernels import fused, launcher
from attention_core.kernels.dropout import Dropout
from attention_core.kernels.hopper import launch as hopper
from attention_core.kernels.hopper import launch_backward, schedule, serves
from attention_core.kernels.triton import key_rows
from attention_core.kernels.triton import launch as portable
from benchmarks.hopper_compile import Hopper

NOTED: list[tuple[bool, list]] = []  # whether Triton itself launched, and what was handed over


class Utils:
    """What Triton asks of a card for a program."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 227 * 1024}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple:
        return name, name, 64, 0, 1024

    def unload_module(self, module: str) -> None:
        return None

    def fill_tma_descriptor(self, pointer: int, *rest: object) -> tuple:
        return "box", pointer, *map(str, rest)

    fill_tma_descriptor_tiled = fill_tma_descriptor


class Noting:
    """A launcher for one program by Triton's interface, which notes what a real one would pass to the card."""

    def __init__(self, src: object, metadata: object) -> None:
        self.launch = nvidia.wrap_handle_tensordesc(
            self.note, dict(src.signature), getattr(metadata, "tensordesc_meta", None)
        )

    def __call__(self, *args: object) -> None:
        # Grid, stream, function, packed metadata; what hooks are told, two hooks; the program's arguments.
        front, rest = args[:9], args[9:]
        if hasattr(nvidia, "_BASE_ARGS_FORMAT_LEN"):  # 3.6
            self.launch(*front, *[None] * (nvidia._BASE_ARGS_FORMAT_LEN - 9), *rest)
        else:
            self.launch(*front, rest)

    @staticmethod
    def note(*args: object) -> None:
        flat = [y for x in args[9:] for y in (x if isinstance(x, (tuple, list)) else [x])]
        pointers = [x.data_ptr() if isinstance(x, Tensor) else x for x in flat]
        NOTED.append((args[7] is not None, [*args[:6], *pointers]))


class Card(Hopper):
    """An H100, as far as Triton asks."""

    utils, launcher_cls = Utils(), Noting


def lowered(text: str, block: int | tuple[int, int], **problem: int) -> Plan:
    return plan(ps.lower(ps.parse(text), block=block, heads=2, **problem), device="cpu")


def calls() -> dict[str, Callable[[], object]]:
    """Calls of the launch functions by name."""
    band, wide = lowered("causal & window(300, 0)", 128, q_len=640), lowered("dense", 128, q_len=128, kv_len=12800)
    long, fine = lowered("dense", 128, q_len=2048), lowered("causal & (window(300, 0) | sink(4))", (64, 1), q_len=640)
    seed = torch.zeros(1, dtype=torch.int64)

    def given(ready: Plan, dim: int = 64, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, ...]:
        q, k = (torch.zeros(1, 2, n, dim, dtype=dtype) for n in (ready.problem.q_len, ready.problem.kv_len))
        return q, k, k  # one tensor twice here, two tensors in the repeated call

    def back(ready: Plan, by_key: bool, dlse: bool, dropout: Dropout | None = None) -> None:
        q, k, v = given(ready)
        lse = torch.zeros(q.shape[:3])
        portable.attention_backward(
            q, k, v, q, lse, q, lse if dlse else None, ready.by_query, ready.by_key if by_key else None, 0.1, dropout
        )

    def hopper_back(ready: Plan, dropout: Dropout | None = None) -> None:
        q, k, v = given(ready)
        lse = torch.zeros(q.shape[:3])
        launch_backward.attention_backward(q, k, v, q, lse, q, None, ready.by_query, ready.by_key, 0.1, dropout=dropout)

    rows, index, table = torch.zeros(2, 3, 64, 16), torch.arange(40), torch.zeros(40, 64)
    for ready in (wide, long):  # their work tables are made here, not among the launches that are compared
        for lists in (ready.by_query, ready.by_key):
            schedule.work_of(lists, 1, 2)
    return {
        "work_table": lambda: schedule.work_of(long.by_query, 1, 4),
        "hopper_backward": lambda: hopper_back(long),
        "hopper_backward_dropout": lambda: hopper_back(long, Dropout(0.1, seed)),
        "hopper": lambda: hopper.attention_forward(*given(wide), wide.by_query, 0.1),
        "hopper_dropout": lambda: hopper.attention_forward(
            *given(wide), wide.by_query, 0.1, dropout=Dropout(0.1, seed)
        ),
        "portable_boxes": lambda: portable.attention_forward(*given(band), band.by_query, 0.1),
        "portable_split": lambda: portable.attention_forward(*given(wide, 16, torch.float32), wide.by_query, 0.1),
        "portable_dropout": lambda: portable.attention_forward(*given(fine), fine.by_query, 0.1, Dropout(0.1, seed)),
        "backward": lambda: back(long, True, False),
        "backward_gathered": lambda: back(fine, False, True, Dropout(0.1, seed)),
        "rows_packed": lambda: key_rows.pack_rows(rows, rows, index, None, 40, rows.dtype),
        "rows_packed_at_slots": lambda: key_rows.pack_rows(rows, rows, index, index, 80, rows.dtype),
        "rows_put": lambda: key_rows.put_rows(table, None, index, rows, rows),
        "rows_moved": lambda: key_rows.move_rows(rows, rows, torch.arange(192), True, rows, rows),
        "rows_added": lambda: key_rows.add_rows(table, index, index, torch.tensor([0, 40, 40]), rows, rows),
    }


def compared(name: str, call: Callable[[], object]) -> None:
    """Make a call, and compare its repetition with what Triton hands over for the same tensors."""

    def thrice(owner: object, kind: object, given: tuple, made: tuple, launch_all: Callable) -> None:
        NOTED.clear()
        launcher.launched(owner, kind, given, made, launch_all)
        first = len(NOTED)
        given, made = (tuple(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in t) for t in (given, made))
        launcher.launched(owner, kind, given, made, launch_all)
        launcher.launched(SimpleNamespace(), kind, given, made, launch_all)
        ours, theirs = NOTED[first : 2 * first], NOTED[2 * first :]
        gone = [weakref.ref(x) for x in given + made]
        del given, made
        gc.collect()
        report = {
            "call": name,
            "programs": first,
            "repeated": not any(by_triton for by_triton, _ in ours) and all(by_triton for by_triton, _ in theirs),
            "arguments": [len(x) for _, x in theirs],
            "same": [a == b for (_, a), (_, b) in zip(ours, theirs, strict=True)],
            "held": sum(x() is not None for x in gone),
        }
        print(json.dumps(report), flush=True)

    for module in (hopper, launch_backward, portable, schedule, key_rows):
        module.launched = thrice
    call()


def hooked() -> None:
    """A launch hook is told of repeated calls too."""
    told: list[object] = []

    def hook(metadata: object) -> None:
        told.append(metadata)

    for module in (hopper, launch_backward, portable, schedule, key_rows):
        module.launched = launcher.launched
    call = calls()["hopper"]
    call()
    knobs.runtime.launch_enter_hook.add(hook)
    NOTED.clear()
    call()
    knobs.runtime.launch_enter_hook.remove(hook)
    by_triton = [by for by, _ in NOTED]
    NOTED.clear()
    call()
    print(json.dumps({"call": "hooked", "with": by_triton, "without": [by for by, _ in NOTED]}), flush=True)


def timed() -> None:
    """Microseconds of the host for a whole call, launches excepted."""
    fused._interpreted, serves._machine = lambda: True, lambda q: None
    Noting.__call__ = lambda self, *args: None
    served = launcher._served
    for backend in ("triton", "hopper"):
        for grad in (False, True):
            x = [torch.zeros(1, 2, 640, 64, dtype=torch.bfloat16, requires_grad=grad) for _ in range(3)]
            for kept in (False, True):
                launcher._served = served if kept else lambda: False
                ready = lowered("causal & window(300, 0)", 128, q_len=640)
                best = float("inf")
                for _ in range(9):
                    begin = time.thread_time()
                    for _ in range(200):
                        block_sparse_attention(*x, ready, backend=backend)
                    best = min(best, (time.thread_time() - begin) / 200 * 1e6)
                print(f"{backend} grad={grad} kept={kept}: {best:.1f} us", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    driver.set_active(Card())
    for module in (hopper, launch_backward):
        module.multiprocessors = lambda device: 132
    portable._has_copy_engine = lambda device: True
    if "time" in sys.argv:
        timed()
        return
    for name, call in calls().items():
        compared(name, call)
    hooked()


if __name__ == "__main__":
    main()
