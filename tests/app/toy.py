"""Small captures for the app's tests: two layers of random attention with a token's name for every row."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from pattern_studio.capture import Capture, LayerCapture, LossGradients

TOKENS = 96


def toy(seed: int = 0, tokens: int = TOKENS, causal: bool = True, layers: tuple[int, ...] = (3, 5)) -> Capture:
    """q [4, tokens, 8], k and v [2, tokens, 8]; keys differ in how much they are looked at, so that rows lose much."""
    random = torch.Generator().manual_seed(seed)

    def part(heads: int) -> torch.Tensor:
        return torch.randn(heads, tokens, 8, generator=random) * 2

    made = {number: LayerCapture(part(4), part(2), part(2)) for number in layers}
    return Capture(made, f"toy {seed}, CC0", f"made up {seed}, CC0", words(tokens), 0.35, causal)


def with_gradients(seed: int = 0, **options) -> Capture:
    """The same with gradients at random, of two draws, large in the last head of each layer."""
    capture, random = toy(seed, **options), torch.Generator().manual_seed(seed + 100)
    found = {n: torch.randn(2, *one.q.shape, generator=random) for n, one in capture.layers.items()}
    for tensor in found.values():
        tensor[:, -1] *= 5
    return replace(capture, gradients=LossGradients(found))


def words(tokens: int) -> tuple[str, ...]:
    return tuple(f" word{n}" for n in range(tokens))


def saved(capture: Capture, path: Path) -> bytes:
    """The bytes of its file; the suffix says of which kind."""
    capture.save(path)
    return path.read_bytes()


def npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()
