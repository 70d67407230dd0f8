"""A pattern in place of a transformers model's own attention. Source: transformers' AttentionInterface."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from ..capture.record import switched_attention
from ..capture.recorder import dense_mask_kind
from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout
from ..lowering import lower
from ..patterns import PRIMITIVES
from ..problem import Problem
from .sparse_attention import sparse_attention

_NAME = "pattern_studio_swap"


@dataclass
class _Swap:
    pattern: Pattern
    layers: Collection[int] | None
    block: int | tuple[int, int]
    met: set[int] = field(default_factory=set)
    layouts: dict[tuple, BlockLayout] = field(default_factory=dict)

    def layout(self, number: int, heads: int, tokens: int, causal: bool) -> BlockLayout:
        key = (*(self.pattern.resolve(head, number) for head in range(heads)), tokens, causal)
        if key not in self.layouts:
            kept = PRIMITIVES["causal"] & self.pattern if causal else self.pattern
            self.layouts[key] = lower(kept, Problem(tokens, heads=heads), block=self.block, layer=number)
        return self.layouts[key]


_ACTIVE: ContextVar[_Swap] = ContextVar("active swap")


@contextmanager
def swapped(
    model: PreTrainedModel,
    pattern: Pattern,
    *,
    layers: Collection[int] | None = None,
    block: int | tuple[int, int] = 128,
) -> Iterator[None]:
    """Within it, the chosen layers (all by default) attend only where the pattern, inside their own mask, allows.

    Exact token semantics in the model's dtype; other layers keep their attention. Differentiable as torch is.
    `block` matters only to patterns with `unit=block`. The model is left as it was, also after an error.

    Raises:
        StudioError: a layer is not there, has a mask that is neither causal nor full, or more than scale * q.k
            in its scores; a sequence comes with a cache; the pattern doesn't fit the heads.
    """
    swap = _Swap(pattern, layers, block)
    token = _ACTIVE.set(swap)
    try:
        with switched_attention(model, _NAME):
            yield
        if swap.met and (missing := sorted(set(layers or ()) - swap.met)):
            raise StudioError(
                f"expected to swap layers {sorted(layers or ())}, got no attention from {missing}; the model has "
                f"{sorted(swap.met)}"
            )
    finally:
        _ACTIVE.reset(token)


def _attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
    swap, number = _ACTIVE.get(), getattr(module, "layer_idx", None)
    if number is None:
        raise StudioError("expected attention layers that know their number (layer_idx), got one that does not")
    swap.met.add(number)
    if swap.layers is not None and number not in swap.layers:
        return AttentionInterface()["sdpa"](module, q, k, v, mask, **kwargs)
    flag = kwargs.get("is_causal")
    causal = dense_mask_kind(mask, bool(getattr(module, "is_causal", True) if flag is None else flag))
    extras = [name for name in ("position_bias", "s_aux", "softcap") if kwargs.get(name) is not None]
    if causal is None or extras or q.shape[2] != k.shape[2]:
        raise StudioError(
            f"expected a causal or full softmax of scale * q.k over one whole sequence in layer {number}, got "
            f"{', '.join(extras) or f'q {list(q.shape)}, k {list(k.shape)} or a mask of another kind'}; choose other "
            "layers, no padding and no cache"
        )
    scale = kwargs.get("scaling")
    layout = swap.layout(number, q.shape[1], q.shape[2], causal)
    outs = [
        sparse_attention(layout, *one, q.shape[-1] ** -0.5 if scale is None else scale)
        for one in zip(q, k, v, strict=True)
    ]
    return torch.stack(outs).transpose(1, 2).contiguous(), None  # [batch, tokens, heads, head_dim]


AttentionInterface.register(_NAME, _attend)
# Without a mask function of the same name transformers makes no mask at all, and causality would be lost.
AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
