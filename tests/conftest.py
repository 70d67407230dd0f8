"""Without a GPU the fused kernels run in Triton's interpreter, the same source on small shapes."""

from __future__ import annotations

import os

import torch

torch.set_num_threads(1)  # two test processes share the cores; more threads would only wait for each other

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported
