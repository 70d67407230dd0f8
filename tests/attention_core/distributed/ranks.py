"""A pool of real processes joined by gloo, so that a test can send each of them work and see what comes back."""

from __future__ import annotations

import os
import queue
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = 120  # seconds for an answer, on a busy machine


def _serve(rank: int, size: int, store: str, seconds: float, tasks: Any, answers: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=TIMEOUT)
    )
    groups = {n: dist.new_group(list(range(n)), timeout=timedelta(seconds=seconds)) for n in range(1, size + 1)}
    while (task := tasks.get()) is not None:
        function, ranks, arguments = task
        try:
            answers.put((rank, True, function(rank, groups[ranks], *arguments)))
        except Exception as error:  # whatever it is, the test's own process gets it and fails on it (see `run`)
            answers.put((rank, False, (type(error).__name__, str(error), traceback.format_exc())))


class Ranks:
    """`size` processes; `run` calls a function on the first so many of them, with its rank and their group.

    Groups wait `seconds` for a rank.
    """

    def __init__(self, size: int, folder: Path, seconds: float = TIMEOUT) -> None:
        context = mp.get_context("spawn")
        self.answers = context.Queue()
        self.tasks = [context.Queue() for _ in range(size)]
        self.processes = [
            context.Process(
                target=_serve, args=(rank, size, str(folder / "store"), seconds, self.tasks[rank], self.answers)
            )
            for rank in range(size)
        ]
        for process in self.processes:
            process.start()

    def ask(self, function: Callable, ranks: int, *arguments: Any) -> dict[int, tuple[bool, Any]]:
        """(whether it returned, what it returned or its error) by rank, of the ranks that answered in time."""
        for rank in range(ranks):
            self.tasks[rank].put((function, ranks, arguments))
        found: dict[int, tuple[bool, Any]] = {}
        alive = {rank for rank in range(ranks) if self.processes[rank].is_alive()}
        while set(found) != alive:
            try:
                rank, good, value = self.answers.get(timeout=TIMEOUT)
            except queue.Empty:
                return found
            found[rank] = good, value
            alive = {rank for rank in range(ranks) if rank in found or self.processes[rank].is_alive()}
        return found

    def run(self, function: Callable, ranks: int, *arguments: Any) -> list[Any]:
        """What each rank returned; an error of any rank fails the test with that rank's traceback."""
        found = self.ask(function, ranks, *arguments)
        for rank in range(ranks):
            good, value = found.get(rank, (False, ("", "", f"rank {rank} did not answer")))
            assert good, f"rank {rank}:\n{value[2]}"
        return [found[rank][1] for rank in range(ranks)]

    def close(self) -> None:
        for tasks in self.tasks:
            tasks.put(None)
        for process in self.processes:
            process.join(20)
            if process.is_alive():
                process.kill()
                process.join()
