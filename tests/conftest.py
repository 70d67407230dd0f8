"""Without a GPU the fused kernels run in Triton's interpreter, the same source on small shapes."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported
