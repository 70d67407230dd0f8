"""attention_outputs: what each layer's attention gives while a transformers model runs, with its graph.

Source: transformers' AttentionInterface.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from ..capture.record import switched_attention
from ..errors import StudioError

_NAME = "pattern_studio_outputs"


@contextmanager
def attention_outputs(model: PreTrainedModel, wanted: Collection[int] | None = None) -> Iterator[dict[int, Tensor]]:
    """Within it, each layer's output of a forward pass goes into the dict, [batch, heads, tokens, head_dim], dense.

    What comes after is computed from these very tensors, so autograd gives gradients by them. The first of the `wanted`
    layers, by default of all, is where the graph begins: a pass back stops there, and what comes before keeps nothing
    for it. The model is left as it was, also after an error. Raises StudioError for attention layers that do not know
    their number.
    """
    token = _ACTIVE.set((outputs := {}, wanted))
    try:
        with switched_attention(model, _NAME):
            yield outputs
    finally:
        _ACTIVE.reset(token)


_ACTIVE: ContextVar[tuple[dict[int, Tensor], Collection[int] | None]] = ContextVar("outputs, and layers wanted")


def _attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
    number = getattr(module, "layer_idx", None)
    if number is None:
        raise StudioError("expected attention layers that know their number (layer_idx), got one that does not")
    out, weights = AttentionInterface()["sdpa"](module, q, k, v, mask, **kwargs)  # [batch, tokens, heads, head_dim]
    outputs, wanted = _ACTIVE.get()
    out = out.transpose(1, 2)
    if not out.requires_grad and (wanted is None or number in wanted):
        out = out.detach().requires_grad_()
    outputs[number] = out
    return out.transpose(1, 2), weights


AttentionInterface.register(_NAME, _attend)
# Without a mask function of the same name transformers makes no mask at all, and causality would be lost.
AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
