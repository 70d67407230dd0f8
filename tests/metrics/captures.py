"""Captures made by hand and at random, and what a dense float64 computation says about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

import pattern_studio as ps
from pattern_studio.capture import Capture, LayerCapture
from tests import strategies


def capture_of(*layers: LayerCapture, scale: float = 1.0, causal: bool = False, first: int = 0) -> Capture:
    """Layers numbered from `first`, with tokens t0, t1, ..."""
    tokens = tuple(f"t{n}" for n in range(layers[0].tokens))
    return Capture(dict(enumerate(layers, first)), "made by hand, CC0", "no text, CC0", tokens, scale, causal)


def weighted(weights: ArrayLike, values: ArrayLike | None = None, heads: int | None = None) -> LayerCapture:
    """A float64 layer whose rows all attend in proportion to `weights` [kv_heads, tokens] (or [tokens]).

    With q = 1, k = ln w and scale 1 the score of key j is ln w_j, whatever the row.
    """
    k = torch.tensor(np.log(np.atleast_2d(weights)))[..., None]  # [kv_heads, tokens, 1]
    v = torch.ones_like(k) if values is None else torch.tensor(np.atleast_2d(values).astype(float))[..., None]
    return LayerCapture(torch.ones(heads or len(k), *k.shape[1:], dtype=torch.float64), k, v)


@st.composite
def random_captures(draw, longest: int = 40) -> Capture:
    """One to two layers of any small size, grouped heads, causal or full, float32 or float64."""
    tokens, head_dim = draw(st.integers(1, longest)), draw(st.integers(1, 4))
    kv_heads, share = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    sharpness = draw(st.sampled_from([0.5, 3.0]))

    def tensor(heads: int) -> torch.Tensor:
        return torch.randn(heads, tokens, head_dim, generator=generator, dtype=torch.float64).to(dtype) * sharpness

    layers = [
        LayerCapture(tensor(kv_heads * share), tensor(kv_heads), tensor(kv_heads))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return capture_of(*layers, scale=head_dim**-0.5, causal=draw(st.booleans()), first=draw(st.integers(0, 3)))


@st.composite
def studies(draw) -> tuple[Capture, ps.Pattern, tuple[int, int]]:
    """A capture, a pattern for its heads and a block size."""
    capture = draw(random_captures())
    heads = next(iter(capture.layers.values())).heads
    pattern = draw(strategies.plain)
    if heads > 1 and draw(st.booleans()):
        pattern = ps.heads({0: pattern, range(1, heads): draw(strategies.plain)})
    return capture, pattern, draw(strategies.blocks)


@dataclass
class Brute:
    """Everything of one layer from full float64 matrices; the formulas as they stand in the docstrings."""

    capture: Capture
    number: int
    pattern: ps.Pattern
    block: tuple[int, int]

    def __post_init__(self) -> None:
        layer = self.capture.layers[self.number]
        share = layer.heads // layer.kv_heads
        q, k, v = (tensor.double().numpy() for tensor in (layer.q, layer.k, layer.v))
        self.k, self.v = k.repeat(share, 0), v.repeat(share, 0)
        n = layer.tokens
        self.dense_mask = np.tril(np.ones((n, n), bool)) if self.capture.causal else np.ones((n, n), bool)
        self.problem = ps.Problem(n, heads=layer.heads)
        self.allowed = ps.dense_mask(self.pattern, self.problem, block=self.block, layer=self.number)
        self.mask = self.allowed & self.dense_mask
        self.scores = np.einsum("hid,hjd->hij", q, self.k) * self.capture.scale
        self.dense = _softmax(self.scores, np.broadcast_to(self.dense_mask, self.mask.shape))
        self.kept = np.where(self.mask, self.dense, 0)

    @cached_property
    def recall(self) -> NDArray[np.float64]:
        return self.kept.sum(-1)

    @cached_property
    def outputs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.dense @ self.v, _softmax(self.scores, self.mask) @ self.v

    def tiles(self, matrix: NDArray) -> NDArray:
        """Sums of [heads, rows, keys] over tiles."""
        block_q, block_k = self.block
        n = matrix.shape[-1]
        padded = np.pad(matrix, ((0, 0), (0, -n % block_q), (0, -n % block_k)))
        shape = (len(matrix), padded.shape[1] // block_q, block_q, padded.shape[2] // block_k, block_k)
        return padded.reshape(shape).sum((2, 4))

    @cached_property
    def oracle(self) -> NDArray[np.float64]:
        """Oracle recall of each head."""
        mass = self.tiles(self.dense).reshape(len(self.mask), -1)
        budget = (self.tiles(self.allowed) > 0).sum((1, 2))
        best = -np.sort(-mass, axis=1)
        return np.array([best[head, :n].sum() for head, n in enumerate(budget)]) / self.mask.shape[1]


def _softmax(scores: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Over the last axis on the mask; 0 on an empty row."""
    masked = np.where(mask, scores, -np.inf)
    top = masked.max(-1, keepdims=True)
    weights = np.exp(masked - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)
