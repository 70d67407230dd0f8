"""AdaptiveBlockSparseMultiheadAttention: tiles chosen from each input, by a gate that learns where the mass lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.learned import BlockGate, Narrowed, live_mass, mass_loss
from pattern_studio.learned.gate import check_temperature

from .adapting import documents_of, narrowed_by
from .conditions import document_table
from .content import ContentChoice
from .masks import read_masks
from .multihead import BlockSparseMultiheadAttention
from .plan_cache import PlanCache
from .projection import projected
from .source import PatternSource

Docs = Sequence[int] | Sequence[Sequence[int]] | Tensor | None  # lengths, for all items or for each


@dataclass(frozen=True)
class Kept:
    """What a choice kept of the dense attention, measured: mass recall over all rows, and the density of tiles."""

    recall: float
    recall_p1: float
    block_density: float


class AdaptiveBlockSparseMultiheadAttention(BlockSparseMultiheadAttention):
    """nn.MultiheadAttention whose tiles are chosen anew for every input, item and head.

    The gate (`pattern_studio.learned.BlockGate`) predicts each tile's share of its rows' attention from
    averaged queries and the keys. By `quality_threshold` each row of tiles keeps the fewest whose
    predicted mass reaches it; by `density` each head keeps that share of its visible tiles. Sinks and the
    diagonal are always kept, causality is exact to the token, and one item never changes another's choice.

    The threshold is on *predicted* mass: `measured(...)` says what was really kept, and a `temperature` above
    1, which `pattern_studio.learned.calibrate` finds for a gate, flattens what is predicted, so that more is
    kept; it is an attribute and may change between calls. The choice is hard and passes no gradient;
    `gate_loss(...)` is what trains the gate, beside the model's own loss or after it. Parameters are those of
    nn.MultiheadAttention, whose weights load with `strict=False`, and the gate's.

    Masks are nn.MultiheadAttention's and obeyed exactly: what they block is neither read by the gate nor
    chosen nor attended; they are read on the host, so on a GPU the call waits for them, and without them
    nothing waits. Where query and key are one tensor, rows of padding have no part in a choice either and
    give `out_proj.bias`. A choice looks at all queries of a block, so a query's tiles can depend on later
    queries in its block.

    >>> attention = create_adaptive_sparse_multihead_attention(32, 4, quality_threshold=0.9, block=16)
    >>> x = torch.randn(2, 100, 32)
    >>> out, _ = attention(x, is_causal=True)
    >>> out.shape
    torch.Size([2, 100, 32])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        quality_threshold: float | None = None,
        density: float | None = None,
        block: int | tuple[int, int] = 64,
        sinks: int = 1,
        temperature: float = 1.0,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = True,
        backend: str = "auto",
        deterministic: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
            pattern="dense",
            block=block,
            backend=backend,
            deterministic=deterministic,
            plan_cache=PlanCache(2),  # for what it is measured against
        )
        self._content = ContentChoice(density, quality_threshold, self.source.block, sinks)
        check_temperature(temperature)
        self.temperature = temperature
        self.gate = BlockGate(num_heads, num_heads, self.head_dim, block).to(device)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        docs: Docs = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(output, weights) as of nn.MultiheadAttention; weights are None unless asked for, which is not the default.

        Without key and value they are the query. `docs` are lengths of documents that lie one after another, as in
        BlockSparseMultiheadAttention: neither the choice nor the attention looks from one into another.
        """
        key = query if key is None else key
        value = key if value is None else value
        options = {"average_attn_weights": average_attn_weights, "is_causal": is_causal, "docs": docs}
        return super().forward(query, key, value, key_padding_mask, need_weights, attn_mask, **options)

    @property
    def density(self) -> float | None:
        """The share of each head's visible tiles that is kept, None where a threshold decides."""
        return self._given.density

    @property
    def quality_threshold(self) -> float | None:
        """The predicted mass that each row of tiles reaches, None where a density decides."""
        return self._given.quality_threshold

    @property
    def _given(self) -> ContentChoice:
        assert self._content is not None  # never turned off
        return self._content

    def set_adaptive(
        self,
        enabled: bool = True,
        *,
        density: float | None = None,
        quality_threshold: float | None = None,
        sinks: int = 1,
    ) -> None:
        """Choose by another density or quality_threshold from the next call on; it can't be turned off."""
        if not enabled:
            raise StudioError(
                "this module always chooses its tiles from content; for a pattern make a BlockSparseMultiheadAttention"
            )
        if density is None and quality_threshold is None:
            density, quality_threshold = self.density, self.quality_threshold
        super().set_adaptive(density=density, quality_threshold=quality_threshold, sinks=sinks)

    def set_pattern(self, pattern: Any) -> NoReturn:
        """Refused: tiles are chosen from content."""
        raise StudioError(
            f"this module chooses its tiles from content and takes no pattern, got {pattern}; make a "
            "BlockSparseMultiheadAttention for it"
        )

    def gate_loss(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        docs: Docs = None,
    ) -> Tensor:
        """KL(dense block mass || predicted) in nats, a scalar whose gradient reaches the gate alone.

        Costs a dense q k product, taken a block of queries at a time: memory grows with length, not its square.
        """
        key = query if key is None else key
        with torch.no_grad():
            q, k, narrowed, causal = self._read(query, key, key_padding_mask, attn_mask, is_causal, docs)
            tiling = self.gate.tiling(q, k, causal)
            target = live_mass(q, k, tiling, scale=self.gate.scale, narrowed=narrowed)
        return mass_loss(self.gate(q, k, causal=causal, narrowed=narrowed), target)

    @torch.no_grad()
    def measured(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        docs: Docs = None,
    ) -> Kept:
        """What the choice for this input keeps, from the LSE of the chosen and of all keys. Waits for the device.

        Rows that see no key under the masks are not counted, nor, in self-attention, rows of padding.
        """
        key = query if key is None else key
        options = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask, "is_causal": is_causal, "docs": docs}
        everything = PatternSource("dense", block=self.source.block, cache=self.source.cache)
        kept, whole = (self._compute(s, query, key, key, **options)[1].double() for s in (self.source, everything))
        q, k, narrowed, causal = self._read(query, key, key_padding_mask, attn_mask, is_causal, docs)
        seen = whole > -torch.inf
        if narrowed is not None and narrowed.rows is not None:
            seen = seen & narrowed.rows[:, None]
        recall = torch.exp(kept[seen] - whole[seen])
        tiling = self.gate.tiling(q, k, causal)
        visible = tiling.visible(q.device)[:, None] if narrowed is None else narrowed.visible(tiling, q.device)
        tiles = self._choose(q, k, causal, narrowed)[0]
        share = tiles.sum() / visible.expand_as(tiles).sum()
        return Kept(float(recall.mean()), float(torch.quantile(recall, 0.01)), float(share))

    def _read(
        self,
        query: Tensor,
        key: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        docs: Docs,
    ) -> tuple[Tensor, Tensor, Narrowed | None, bool]:
        """q and k by head, what masks and documents leave of them, and whether causality is left to us."""
        self._check(query, key, key)
        alike = query is key
        if query.ndim == 2:
            query, key = query[None], key[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        q, k, _ = projected(self, query, key, key)
        masks = read_masks(attn_mask, key_padding_mask, len(q), self.num_heads, q.shape[2], k.shape[2])
        documents = documents_of(document_table(docs), q, k)
        return q, k, narrowed_by(masks, alike, documents), is_causal and attn_mask is None

    def _choose(self, q: Tensor, k: Tensor, causal: bool, narrowed: Narrowed | None) -> tuple[Tensor, tuple[int, int]]:
        chosen = self.gate.choose(
            q,
            k,
            density=self.density,
            quality_threshold=self.quality_threshold,
            temperature=self.temperature,
            sinks=self._given.sinks,
            diagonal=causal or q.shape[2] == k.shape[2],
            causal=causal,
            narrowed=narrowed,
        )
        return chosen, self.gate.block


def create_adaptive_sparse_multihead_attention(
    embed_dim: int,
    num_heads: int,
    quality_threshold: float = 0.95,
    *,
    segment_lengths: Sequence[int] | None = None,
    dilation_rates: Sequence[int] | None = None,
    **options: Any,
) -> AdaptiveBlockSparseMultiheadAttention:
    """The adaptive module by the guide's name: a row keeps the fewest tiles whose predicted mass reaches the threshold.

    The guide's `segment_lengths` and `dilation_rates` fix a pattern and are refused: here content decides.

    >>> create_adaptive_sparse_multihead_attention(64, 4).quality_threshold
    0.95
    """
    if segment_lengths is not None or dilation_rates is not None:
        raise StudioError(
            "segment_lengths and dilation_rates fix a pattern, and this module chooses from content: leave them out, "
            "or give them to create_block_sparse_multihead_attention()"
        )
    return AdaptiveBlockSparseMultiheadAttention(embed_dim, num_heads, quality_threshold=quality_threshold, **options)
