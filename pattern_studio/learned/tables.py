"""tables: what follows from a tiling alone, made on a device once and kept for the next call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from .tiling import Tiling

KEPT = 2**22  # tiles of a tiling whose tables are kept


def kept_table(make: Callable[..., Any], tiling: Tiling, device: torch.device, *options: Any) -> Any:
    """`make(tiling, device, *options)`: tensors that nobody writes to, from one call to the next where they are small.

    Kept for a stream: what another one makes may not be there yet. Made anew on a CPU and while a graph is captured,
    whose memory is the graph's own.
    """
    small = tiling.q_blocks * tiling.kv_blocks <= KEPT
    if not small or device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return _made(make, tiling, device, options, 0)
    return _made_once(make, tiling, device, options, torch.cuda.current_stream(device).cuda_stream)


def _made(make: Callable[..., Any], tiling: Tiling, device: torch.device, options: tuple, stream: int) -> Any:
    with torch.inference_mode(False):  # an inference tensor would serve no later call outside that mode
        return make(tiling, device, *options)


_made_once = lru_cache(maxsize=32)(_made)
