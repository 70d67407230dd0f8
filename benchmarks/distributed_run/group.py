"""Processes joined into one group, that answer within a limit or are ended."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

START = 120.0  # seconds for processes to import torch and to meet


class CaseError(RuntimeError):
    """A rank failed, died or did not answer in time: the others may still wait for it, so the group is ended."""


class Group:
    """`ranks` processes, one a GPU with NCCL where `device` is "cuda", joined by gloo on this machine's CPU otherwise.

    `ask` runs a function on all of them, with its rank and the number of ranks, and returns what each returned.
    """

    def __init__(self, ranks: int, device: str, folder: Path, timeout: float) -> None:
        context = mp.get_context("spawn")
        self.ranks, self.processes, self.pipes = ranks, [], []
        self.asked = 0
        for rank in range(ranks):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, ranks, device, str(folder / "store"), timeout, theirs), daemon=True
            )
            process.start()
            theirs.close()  # so that the death of a rank ends its pipe
            self.processes.append(process)
            self.pipes.append(mine)

    def ask(self, work: Callable[..., Any], *arguments: Any, limit: float = START) -> list[Any]:
        """What `work(rank, ranks, *arguments)` returned on each rank, in their order.

        Raises CaseError where a rank fails, dies, or has not answered after `limit` seconds.
        """
        self.asked += 1
        for rank, pipe in enumerate(self.pipes):
            try:
                pipe.send((self.asked, work, arguments))
            except OSError:
                raise CaseError(f"rank {rank} of {self.ranks} is gone") from None
        found: dict[int, Any] = {}
        end = time.monotonic() + limit
        while len(found) < self.ranks:
            waited = {pipe: rank for rank, pipe in enumerate(self.pipes) if rank not in found}
            ready = wait(list(waited), max(0.0, end - time.monotonic()))
            if not ready:
                raise CaseError(f"ranks {sorted(waited.values())} of {self.ranks} did not answer in {limit:.0f} s")
            for pipe in ready:
                rank = waited[pipe]  # type: ignore[index]
                try:
                    number, good, value = pipe.recv()  # type: ignore[union-attr]
                except (EOFError, OSError):
                    raise CaseError(f"rank {rank} of {self.ranks} died") from None
                if number < self.asked:
                    continue  # it was late, and nobody waits for that answer any more
                if not good:
                    raise CaseError(f"rank {rank} of {self.ranks}: {value}")
                found[rank] = value
        return [found[rank] for rank in range(self.ranks)]

    def close(self, seconds: float = 10.0) -> None:
        """Ask the ranks to leave, and end those that don't."""
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                continue  # it is gone
        for process in self.processes:
            process.join(seconds)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(rank: int, ranks: int, device: str, store: str, timeout: float, pipe: Connection) -> None:
    joined = {"init_method": f"file://{store}", "rank": rank, "world_size": ranks}
    if device == "cuda":
        torch.cuda.set_device(rank)
        joined |= {"backend": "nccl", "device_id": torch.device("cuda", rank)}
    else:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        joined |= {"backend": "gloo"}
    dist.init_process_group(timeout=timedelta(seconds=timeout), **joined)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return  # whoever asked is gone
        if task is None:
            dist.destroy_process_group()
            return
        number, work, arguments = task
        try:
            answer = number, True, work(rank, ranks, *arguments)
        except Exception as error:  # whatever it is, the asker prints it and goes on with other cases
            where = traceback.extract_tb(error.__traceback__)[-1]
            answer = number, False, f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        pipe.send(answer)
