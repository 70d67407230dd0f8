"""What repeated starts of the programs hand over, on a machine without a GPU. Run as a program by test_launch.py.

Triton compiles for an H100 and launches by a driver whose last step notes what it was given. Each call is made with
some tensors, with others, which are handed over by what the first call kept, and with these by Triton alone. Prints
a line of JSON for each; with the argument `time` the microseconds of the host for both ways instead.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from pattern_studio.learned import Tiling, choose, mean_query, pooled, programs, tables
from pattern_studio.learned.programs import launch as launching
from tests.attention_core import launch_recorder
from tests.attention_core.launch_recorder import NOTED, Card

SEARCHED: list[str] = []  # programs that Triton itself looked for


def searched(run: Callable) -> Callable:
    def told(self: JITFunction, *args: object, **options: object) -> object:
        SEARCHED.append(self.__name__)
        return run(self, *args, **options)

    return told


def calls() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Calls by name, of q and k."""
    tiling, fine = Tiling(512, 512, (64, 64)), Tiling(512, 512, (64, 1))
    return {
        "choose_pooled": lambda q, k: choose(pooled, q, k, tiling, 0.5),
        "choose_mean_query": lambda q, k: choose(mean_query, q, k, tiling, 0.5),
        "pooled": lambda q, k: pooled(q, k, tiling),
        "pooled_long_rows": lambda q, k: pooled(q.float(), k.float(), fine),
    }


def given() -> tuple[Tensor, Tensor]:
    return tuple(torch.zeros(1, heads, 512, 64, dtype=torch.bfloat16) for heads in (4, 2))


def compared(name: str, call: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Two calls on one pair of tensors, by what is kept and by Triton, after one on another pair."""
    call(*given())
    other, found = given(), []
    for _ in range(2):
        del NOTED[:], SEARCHED[:]
        held = [call(*other)]
        found.append(([args for _, args in NOTED], list(SEARCHED)))
        del held
        launching._compiled.clear()
    (ours, none), (theirs, names) = found
    # Fresh outputs may lie elsewhere in the second call: where a pointer differs, both are pointers. A heap may begin
    # low in memory, but above all strides and sizes here.
    same = [
        len(a) == len(b) and all(x == y or min(x, y) > 2**20 for x, y in zip(a, b, strict=True))
        for a, b in zip(ours, theirs, strict=True)
    ]
    report = {"call": name, "programs": names, "searched_again": none, "same": same}
    print(json.dumps(report), flush=True)


def timed(name: str, call: Callable[[Tensor, Tensor], Tensor]) -> None:
    """The card's part left out: notes are not taken."""
    launch_recorder.Noting.__call__ = lambda self, *args: None
    tables._made = tables._made_once  # as on a card
    pair, best = given(), {}
    for way in ("kept", "by Triton"):
        best[way] = float("inf")
        for _ in range(7):
            begin = time.thread_time()
            for _ in range(100):
                if way != "kept":
                    launching._compiled.clear()
                call(*pair)
            best[way] = min(best[way], (time.thread_time() - begin) * 1e4)
    print(name, {way: round(us, 1) for way, us in best.items()}, flush=True)


def main() -> None:
    torch.set_num_threads(1)
    driver.set_active(Card())
    programs.on_device = lambda x: True
    JITFunction.run = searched(JITFunction.run)
    for name, call in calls().items():
        (timed if "time" in sys.argv else compared)(name, call)


if __name__ == "__main__":
    main()
