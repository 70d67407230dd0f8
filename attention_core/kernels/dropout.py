"""Dropout on probabilities: which pairs are dropped, the same for every backend, tiling and pass.

A pair's word comes from the counter-based generator Philox4x32 (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC 2011) with 7 rounds, the fewest that pass its authors' tests. The
counter is (key, row, head, batch), 32 bits each, and the key is the 64-bit seed, so that nothing but
the pair's own place and the seed decides. The fused kernels compute the same words with `tl.philox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDS = 7
WORD = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85


@dataclass(frozen=True, eq=False)
class Dropout:
    """Drop each allowed pair with probability `p`, 0 < p < 1; `seed` is int64 [1] on the inputs' device.

    Where batch entries are worked as further heads, `heads` is how many each really has.
    """

    p: float
    seed: Tensor
    heads: int | None = None

    @property
    def threshold(self) -> int:
        """A pair is kept where its 32-bit word is at least this."""
        return min(round(self.p * 2**32), WORD)

    @property
    def weight(self) -> float:
        """What a kept probability is multiplied by: 1 / the exact chance of being kept."""
        return 1 / (1 - self.threshold / 2**32)

    def weights(self, batch: Tensor, head: Tensor, row: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
        """`weight` where a pair is kept, 0 where it is dropped, in the broadcast shape of the int64 positions."""
        if self.heads is not None:
            batch, head = batch + head // self.heads, head % self.heads
        kept = words(self.seed, key, row, head, batch) >= self.threshold
        return kept.to(dtype) * self.weight


def drawn(dropout: Dropout | None) -> tuple[float | None, tuple[Tensor, ...]]:
    """What of dropout is a number, and the seed, which changes from call to call."""
    return (None, ()) if dropout is None else (dropout.p, (dropout.seed,))


def as_arguments(p: float | None, seed: Sequence[Tensor]) -> tuple[Tensor | None, int | None, float | None]:
    """Seed, threshold and weight as the fused programs take them; None leaves no argument in the compiled program."""
    if p is None:
        return None, None, None
    [one] = seed
    dropout = Dropout(p, one)
    return one, dropout.threshold - 2**31, dropout.weight


def words(seed: Tensor, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor) -> Tensor:
    """First word of Philox4x32 for counters in int64 tensors that broadcast: int64, 0 to 2^32 - 1.

    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> hex(words(zero, zero, zero, zero, zero).item())
    '0x5f6fb709'
    """
    k0, k1 = seed & WORD, seed >> 32 & WORD
    for _ in range(ROUNDS):
        # int64 products wrap, and a wrapped product has the bits of the unsigned one.
        first, third = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = third >> 32 & WORD ^ c1 ^ k0, third & WORD
        c2, c3 = first >> 32 & WORD ^ c3 ^ k1, first & WORD
        k0, k1 = k0 + WEYL[0] & WORD, k1 + WEYL[1] & WORD
    return c0
