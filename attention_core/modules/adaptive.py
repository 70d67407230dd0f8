"""AdaptiveBlockSparseMultiheadAttention: tiles chosen from each input, by a gate that learns where the mass lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import pattern_studio as ps
from pattern_studio.errors import StudioError
from pattern_studio.learned import BlockGate, live_mass, mass_loss

from ..ops import block_sparse_attention
from ..plan import Plan, plan
from ..plan_from_mask import plan_from_mask
from .projection import projected


@dataclass(frozen=True)
class Kept:
    """What a choice kept of the dense attention, measured: mass recall over all rows, and the density of tiles."""

    recall: float
    recall_p1: float
    block_density: float


class AdaptiveBlockSparseMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention whose tiles are chosen anew for every input, item and head.

    The gate (`pattern_studio.learned.BlockGate`) predicts each tile's share of its rows' attention from
    averaged queries and the keys. By `quality_threshold` each row of tiles keeps the fewest whose
    predicted mass reaches it; by `density` each head keeps that share of its visible tiles. Sinks and the
    diagonal are always kept, causality is exact to the token, and one item never changes another's choice.

    The threshold is on *predicted* mass: `measured(...)` says what was really kept. The choice is hard and
    passes no gradient; `gate_loss(...)` is what trains the gate, beside the model's own loss or after it.
    Parameters are those of nn.MultiheadAttention, whose weights load with `strict=False`, and the gate's.

    Padded batches and attention masks are refused: under `is_causal` padding on the right changes no real
    row. A choice looks at all queries of a block, so a query's tiles can depend on later queries in its block.

    >>> attention = create_adaptive_sparse_multihead_attention(32, 4, quality_threshold=0.9, block=16)
    >>> x = torch.randn(2, 100, 32)
    >>> out, _ = attention(x, x, x, is_causal=True)
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
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = True,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, batch_first=batch_first, device=device, dtype=dtype)
        # nn.TransformerEncoderLayer asks for this before it goes around a module's forward.
        self._qkv_same_embed_dim = False
        if (quality_threshold is None) == (density is None):
            raise StudioError(
                f"give either quality_threshold or density, got {quality_threshold!r} and {density!r}: a predicted "
                "mass or a budget decides how much is kept"
            )
        self.quality_threshold, self.density, self.sinks, self.backend = quality_threshold, density, sinks, backend
        self.gate = BlockGate(num_heads, num_heads, self.head_dim, block).to(device)

    def forward(  # type: ignore[override]  # masks are refused, so fewer arguments
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: None = None,
        need_weights: bool = False,
        attn_mask: None = None,
        *,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """(output, None); inputs [batch, length, embed_dim], or [length, batch, embed_dim] without batch_first."""
        if key_padding_mask is not None or attn_mask is not None or need_weights:
            raise StudioError(
                "the adaptive module takes no key_padding_mask, attn_mask or need_weights=True: right padding needs no "
                "mask under is_causal=True; for other masks use BlockSparseMultiheadAttention"
            )
        q, k, v = self._heads(query, key, value)
        made = self._plan(q, k, is_causal)
        dropout = self.dropout if self.training else 0.0
        out = block_sparse_attention(q, k, v, made, backend=self.backend, dropout_p=dropout)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        return (out if self.batch_first else out.transpose(0, 1)), None

    def gate_loss(self, query: Tensor, key: Tensor, *, is_causal: bool = False) -> Tensor:
        """KL(dense block mass || predicted) in nats, a scalar whose gradient reaches the gate alone.

        Costs a dense q k product, taken a block of queries at a time: memory grows with length, not its square.
        """
        with torch.no_grad():
            q, k, _ = self._heads(query, key, key)
            target = live_mass(q, k, self.gate.tiling(q, k, is_causal), scale=self.gate.scale)
        return mass_loss(self.gate(q, k, causal=is_causal), target)

    @torch.no_grad()
    def measured(self, query: Tensor, key: Tensor, *, is_causal: bool = False) -> Kept:
        """What the choice for this input keeps, from the LSE of the chosen and of all keys. Waits for the device."""
        q, k, _ = self._heads(query, key, key)
        made = self._plan(q, k, is_causal)
        size = {"q_len": q.shape[2], "kv_len": k.shape[2], "block": self.gate.block}
        dense = plan(ps.lower(ps.causal if is_causal else ps.dense, **size), q.device)
        kept, whole = (
            block_sparse_attention(q, k, k, each, return_lse=True, backend=self.backend)[1].double()
            for each in (made, dense)
        )
        recall = torch.exp(kept - whole).flatten()
        tiling = self.gate.tiling(q, k, is_causal)
        visible = tiling.visible(q.device).sum() * q.shape[0] * q.shape[1]
        share = self._choice(q, k, is_causal).sum() / visible
        return Kept(float(recall.mean()), float(torch.quantile(recall, 0.01)), float(share))

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.ndim != 3 or x.shape[-1] != self.embed_dim:
                raise StudioError(f"{name} must be [batch, length, {self.embed_dim}], got {list(x.shape)}")
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        return projected(self, query, key, value)

    def _choice(self, q: Tensor, k: Tensor, causal: bool) -> Tensor:
        return self.gate.choose(
            q,
            k,
            density=self.density,
            quality_threshold=self.quality_threshold,
            sinks=self.sinks,
            diagonal=q.shape[2] == k.shape[2],
            causal=causal,
        )

    def _plan(self, q: Tensor, k: Tensor, causal: bool) -> Plan:
        mask = self._choice(q, k, causal)
        return plan_from_mask(mask, q_len=q.shape[2], kv_len=k.shape[2], block=self.gate.block, causal=causal)


def create_adaptive_sparse_multihead_attention(
    embed_dim: int, num_heads: int, quality_threshold: float = 0.95, **options
) -> AdaptiveBlockSparseMultiheadAttention:
    """The adaptive module by the guide's name: a row keeps the fewest tiles whose predicted mass reaches the threshold.

    >>> create_adaptive_sparse_multihead_attention(64, 4).quality_threshold
    0.95
    """
    return AdaptiveBlockSparseMultiheadAttention(embed_dim, num_heads, quality_threshold=quality_threshold, **options)
