"""Sparse Transformer (Child, Gray, Radford and Sutskever 2019, arXiv:1904.10509)."""

from __future__ import annotations

from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole

causal, chunk, comb, strided, window = (PRIMITIVES[word] for word in ("causal", "chunk", "comb", "strided", "window"))


def sparse_transformer_strided(stride: int = 128) -> Pattern:
    """Sparse Transformer, strided: the last `stride` tokens, and before them every stride-th; both in one head.

    Predicate: `j <= i`, and `i - j <= stride` or `(i - j) % stride == 0`. For the paper's two heads
    take the parts: `causal & window(stride, 0)` and `causal & strided(stride)`.

    Source: Sparse Transformer (Child et al. 2019, arXiv:1904.10509).

    >>> str(sparse_transformer_strided(64))
    'causal & (window(64, 0) | strided(64))'
    """
    return causal & (window(stride, 0) | strided(stride))


def sparse_transformer_fixed(stride: int = 128, summary: int = 8) -> Pattern:
    """Sparse Transformer, fixed: the query's own segment, and the last `summary` tokens of every earlier one.

    Predicate: `j <= i`, and `i // stride == j // stride` or `j % stride >= stride - summary` (the paper's
    l and c). For the paper's two heads take the parts.

    Source: Sparse Transformer (Child et al. 2019, arXiv:1904.10509).

    >>> str(sparse_transformer_fixed(64, 4))
    'causal & (chunk(64) | comb(64, (range(60, 64),)))'
    """
    size = whole("sparse_transformer_fixed's stride", stride, 1)
    first = size - whole("sparse_transformer_fixed's summary", summary, 1, size)
    return causal & (chunk(size) | comb(size, range(first, size)))
