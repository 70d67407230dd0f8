"""The capture that comes with Pattern Studio: SmolLM2-135M on public-domain prose, layers 7 and 20, 1024 tokens."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pattern_studio.capture.capture import Capture


def bundled_path() -> Path:
    """Where the bundled file lies; data/README.md beside it states its origin and licences."""
    return Path(__file__).parent / "data" / "smollm2-135m.safetensors"


@cache
def bundled() -> Capture:
    """The bundled capture, read once a process and shared by all callers: don't change its tensors in place.

    Layers 7 and 20; q [9, 1024, 64], k and v [3, 1024, 64], float16 on the CPU; causal.

    Example:
        >>> capture = bundled()
        >>> list(capture.layers), capture.scale, capture.tokens[:4]
        ([7, 20], 0.125, ('This', ' document', ' is', ' a'))
    """
    return Capture.load(bundled_path())
