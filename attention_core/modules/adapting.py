"""Adaptive: what a multi-head module does whose tiles are chosen from each call's own content."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout
from pattern_studio.learned import Narrowed, document_of
from pattern_studio.problem import Problem, block_shape

from .chosen import Chosen
from .conditions import check_conditions, is_causal_table
from .config import SparsePatternConfig
from .content import ContentChoice
from .dense import check_cells, dense_attention
from .masks import Masks
from .reporting import Reporting
from .run import run_plan


class Adaptive(Reporting):
    """Mixed into modules with heads: `set_adaptive()` on and off, and attention under tiles chosen for a call.

    Masks are obeyed exactly: what they block is neither chosen nor attended, and what is padding changes
    nothing that is real. An item's choice is its own. A row whose tiles a mask leaves without keys gives
    `out_proj.bias`, as elsewhere here.
    """

    backend: str
    deterministic: bool
    _content: ContentChoice | None = None
    _chosen: Chosen | None = None

    @property
    def adaptive(self) -> bool:
        """Whether tiles are chosen from content."""
        return self._content is not None

    def set_adaptive(
        self,
        enabled: bool = True,
        *,
        density: float | None = None,
        quality_threshold: float | None = None,
        sinks: int = 1,
    ) -> None:
        """From the next call on choose tiles from each input, or, with False, take the module's pattern again.

        Each row of tiles keeps those in which the mean of its queries finds most mass, of its own heads and
        items, beside the tiles of the first `sinks` keys and of the diagonal. `density` is the share of
        visible tiles that is kept, by default that of the module's budget, which set_density() changes;
        `quality_threshold` keeps the fewest tiles whose estimated mass reaches it instead. Nothing is
        trained and the state_dict stays as it is; for a gate that learns there is
        create_adaptive_sparse_multihead_attention(). A choice looks at all queries of a block, so a query's
        tiles can depend on later queries in its block.

        Raises StudioError where neither a density nor a threshold is known.

        >>> from attention_core import create_block_sparse_multihead_attention
        >>> attention = create_block_sparse_multihead_attention(32, 4, density=0.25, block_size=16)
        >>> attention.set_adaptive()
        >>> x = torch.randn(1, 256, 32)
        >>> out, _ = attention(x, x, x, need_weights=False, is_causal=True)
        >>> attention.adaptive, attention.get_performance_stats()["block_density"] < 0.25
        (True, True)
        """
        if not enabled:
            self._content = self._chosen = None
            return
        config: SparsePatternConfig | None = self.sparse_config
        budget = None if config is None else config.density
        if density is None and quality_threshold is None:
            if budget is None:
                raise StudioError(
                    f"this module's pattern is {self.source.given}, which has no budget to keep; say density=0.25 or "
                    "quality_threshold=0.95"
                )
            density = budget
        block = block_shape(self.source.block if config is None else config.block_size)
        self._content = ContentChoice(density, quality_threshold, block, sinks)

    def enable_adaptive_sparsity(self, enabled: bool = True, **options) -> None:
        """The guide's name for set_adaptive."""
        self.set_adaptive(enabled, **options)

    def set_density(self, density: float) -> None:
        """Keep another share of the tiles from the next call on, chosen from content where the module is adaptive.

        Raises StudioError where the module has neither a budget nor chooses from content.
        """
        if self._content is None:
            super().set_density(density)
            return
        content = ContentChoice(density, None, self._content.block, self._content.sinks)
        if self.sparse_config is not None:
            super().set_density(density)
        self._content = content

    def _choose(self, q: Tensor, k: Tensor, causal: bool, narrowed: Narrowed | None) -> tuple[Tensor, tuple[int, int]]:
        """Kept tiles, bool [batch, heads, q_blocks, kv_blocks], and their block."""
        assert self._content is not None  # asked for by adaptive modules only
        return self._content.choose(q, k, causal, narrowed)

    def _check_adaptive(self, extra: int) -> None:
        if extra:
            raise StudioError(
                "tiles chosen from content don't take the keys that add_bias_kv and add_zero_attn add; make the module "
                "without them, or call set_adaptive(False)"
            )

    @torch.compiler.disable  # one clean break: what is chosen is data, and a plan is made of it
    def _attend_chosen(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        masks: Masks,
        docs: Tensor | None,
        causal: bool,
        alike: bool,
        need_weights: bool,
        dropout: float,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """(out, probabilities or None, lse) under tiles that are chosen now."""
        masks, causal = _named(masks, causal, q.shape[2] == k.shape[2])
        documents = documents_of(docs, q, k)
        tiles, block = self._choose(q, k, causal, narrowed_by(masks, alike, documents))
        problem = Problem(q.shape[2], k.shape[2], heads=q.shape[1])
        keys = None if masks.padding is None else ~masks.padding
        chosen = self._chosen = Chosen(tiles, problem, block, causal, keys, masks.allowed, documents)
        scale = 1 / math.sqrt(q.shape[3])
        if need_weights or masks.bias is not None:
            why = "need_weights=True" if masks.bias is None else "a float mask of other values than 0 and -inf"
            check_cells(q.shape[0], q.shape[1], q.shape[2], k.shape[2], why)
            return dense_attention(q, k, v, chosen.allowed(), masks.bias, dropout, scale)
        plan, folded = chosen.plan()
        seed = torch.randint(2**63 - 1, (1,), device=q.device) if dropout else None
        out, lse = run_plan(plan, folded, q, k, v, scale, dropout, seed, self.backend, self.deterministic)
        return out, None, lse

    def _latest_layout(self) -> BlockLayout | None:
        return super()._latest_layout() if self._chosen is None else self._chosen.layout()


def documents_of(docs: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Each position's document on q's device, int64 [1 or batch, kv_len], from lengths [1 or batch, documents].

    Raises StudioError where they are not of as many items as q, or don't add up to k's length.
    """
    if docs is None:
        return None
    check_conditions(q.shape[0], q.shape[1], q.shape[2], k.shape[2], None, docs, None)
    sums = docs.sum(1).tolist()
    if set(sums) != {k.shape[2]}:
        raise StudioError(f"document lengths must add up to kv_len {k.shape[2]}, got sums of {sums}; count every token")
    return document_of(docs).to(q.device)


def narrowed_by(masks: Masks, alike: bool, docs: Tensor | None = None) -> Narrowed | None:
    """What masks and documents leave, for a choice; None for neither. In self-attention (`alike`) padding has no
    queries either."""
    if masks.empty and docs is None:
        return None
    keys = None if masks.padding is None else ~masks.padding
    pairs = masks.allowed
    if masks.bias is not None:
        seen = masks.bias != -torch.inf
        seen = seen.reshape((1,) * (4 - seen.ndim) + tuple(seen.shape))
        pairs = seen if pairs is None else pairs & seen
    return Narrowed(keys, keys if alike else None, pairs, docs)


def _named(masks: Masks, causal: bool, square: bool) -> tuple[Masks, bool]:
    """A causal mask that was passed as a table costs nothing once it is named."""
    if square and masks.allowed is not None and is_causal_table(masks.allowed):
        return Masks(masks.padding, None, masks.bias), True
    return masks, causal
