"""Where a benchmark of models runs, and for how long: its options, the machine's stamp and the time that is left."""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pattern_studio as ps

JARGON = Path("/usr/share/doc/jargon-text/jargon.txt.gz")


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--device`, `--minutes` and `--jargon`."""
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: the model, the analysis and the fits run there")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no row after so many")
    parser.add_argument("--jargon", type=Path, default=JARGON, help="jargon.txt.gz of Debian's jargon-text")


def device_of(options: argparse.Namespace) -> torch.device:
    """The device that was asked for; a StudioError where torch has none such."""
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ps.StudioError("expected a GPU that torch can use, got none; take --device cpu")
    return device


def stamp(device: torch.device) -> dict[str, Any]:
    """What a result was made with."""
    gpu = device.type == "cuda"
    return {
        "kind": "GPU" if gpu else "CPU",
        **({"gpu": torch.cuda.get_device_name(device)} if gpu else {}),
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "pattern_studio": ps.__version__,
        "date": datetime.date.today().isoformat(),
    }


def cpu() -> str:
    """The processor's model name."""
    for told in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if told.startswith("model name"):
            return told.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


class Clock:
    """Minutes that run from now on.

    >>> Clock(math.inf).over, Clock(0).over
    (False, True)
    """

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether they have run out."""
        return time.monotonic() >= self.end
