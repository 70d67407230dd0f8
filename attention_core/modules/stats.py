"""What a module can say of its runs: times that were measured, densities that were achieved, bytes that are held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pattern_studio.layout import BlockLayout

from ..plan import Plan


@dataclass(frozen=True)
class Forward:
    """One measured forward: seconds on the clock of its device, and the lengths it was for."""

    seconds: float
    q_len: int
    kv_len: int


class PerformanceMonitor:
    """Times forwards while it is enabled; off by default, and then a forward pays for one attribute look-up.

    On CUDA it waits for the device before and after each forward, so enable it to look, not to train.
    `on_forward` adds a function that is called with each Forward, for logging. Compiled graphs are not
    timed: time the whole step around them.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.speedup: float | None = None  # against a dense run, where it was measured
        self.quality: float | None = None  # mean mass recall, where it was measured
        self._hooks: list[Callable[[Forward], object]] = []
        self.reset()

    def enable(self) -> None:
        """Measure from the next forward on."""
        self.enabled = True

    def disable(self) -> None:
        """Stop measuring; what was measured stays."""
        self.enabled = False

    def reset(self) -> None:
        """Forget what was measured."""
        self.forwards, self.seconds, self.speedup, self.quality = 0, 0.0, None, None
        self._lock = threading.Lock()

    def on_forward(self, hook: Callable[[Forward], object]) -> None:
        """Call `hook` after each measured forward."""
        self._hooks.append(hook)

    @contextmanager
    def measured(self, device: torch.device, q_len: int, kv_len: int) -> Iterator[None]:
        """Time what runs inside."""
        _wait(device)
        start = time.perf_counter()
        yield
        _wait(device)
        done = Forward(time.perf_counter() - start, q_len, kv_len)
        with self._lock:
            self.forwards += 1
            self.seconds += done.seconds
        for hook in self._hooks:
            hook(done)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def timed(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median seconds of a call, after one that is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2]


def densities(layout: BlockLayout) -> dict[str, float | None]:
    """Achieved token and block density: shares of all pairs and of all tiles; None where there are none."""
    problem = layout.problem
    pairs = problem.heads * problem.q_len * problem.kv_len
    tiles = problem.heads * layout.q_blocks * layout.kv_blocks
    return {
        "token_density": layout.pairs / pairs if pairs else None,
        "block_density": layout.tiles() / tiles if tiles else None,
    }


def plan_bytes(plan: Plan) -> int:
    """Bytes of a plan: its layout on the host and the tensors of its kernels."""
    layout = plan.layout
    arrays = (
        layout.head_group,
        layout.bands,
        layout.bits,
        *(getattr(layout.rows, n) for n in layout.rows.__annotations__),
    )
    tensors = [x for part in _made(plan) for x in vars(part).values() if isinstance(x, Tensor)]
    return sum(a.nbytes for a in arrays) + sum(x.numel() * x.element_size() for x in tensors)


def _made(plan: Plan) -> list[Any]:
    """The parts of a plan that exist already; asking for bytes makes no more."""
    lists = [plan.__dict__[name] for name in ("by_query", "by_key") if name in plan.__dict__]
    return [plan.runs, *lists]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
