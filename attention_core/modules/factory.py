"""create_block_sparse_multihead_attention(): the drop-in with a pattern by budget, as the guide calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .config import SparsePatternConfig
from .multihead import BlockSparseMultiheadAttention


def create_block_sparse_multihead_attention(
    embed_dim: int,
    num_heads: int,
    density: float | None = None,
    pattern_type: str = "dilated_sparse",
    *,
    sparsity_ratio: float | None = None,
    block_size: int | tuple[int, int] = 128,
    segment_lengths: Sequence[int] | None = None,
    dilation_rates: Sequence[int] | None = None,
    global_tokens: int | None = None,
    local_window_size: int | None = None,
    dense_up_to: int = 0,
    dropout: float = 0.0,
    batch_first: bool = True,
    **options: Any,
) -> BlockSparseMultiheadAttention:
    """BlockSparseMultiheadAttention with a pattern that is chosen by budget for each length.

    `density` is the share of tiles kept, .25 unless lengths fix it; `sparsity_ratio` is the guide's
    name for the same, the fraction *kept*. The other pattern options are SparsePatternConfig's. As in
    the guide, batch_first is True; `options` are nn.MultiheadAttention's and BlockSparseMultiheadAttention's.

    >>> attention = create_block_sparse_multihead_attention(512, 8, sparsity_ratio=0.25)
    >>> attention.sparse_config.density, attention.sparse_config.pattern_type
    (0.25, 'dilated_sparse')
    """
    sized = segment_lengths is not None or local_window_size is not None
    if density is None and sparsity_ratio is None and not sized:
        density = 0.25
    config = SparsePatternConfig(
        pattern_type,
        density,
        block_size,
        global_tokens,
        local_window_size,
        None if dilation_rates is None else tuple(dilation_rates),
        None if segment_lengths is None else tuple(segment_lengths),
        dense_up_to,
        sparsity_ratio=sparsity_ratio,
    )
    return BlockSparseMultiheadAttention(
        embed_dim,
        num_heads,
        dropout=dropout,
        batch_first=batch_first,
        pattern=config,
        block=config.block_size,
        **options,
    )
