"""attention_outputs: what each layer's attention gives while a transformers model runs, with its graph.

Source: transformers' AttentionInterface.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from ..capture.record import switched_attention
from ..errors import StudioError

_NAME = "pattern_studio_outputs"


@contextmanager
def attention_outputs(model: PreTrainedModel) -> Iterator[dict[int, Tensor]]:
    """Within it, each layer's output of a forward pass goes into the dict, [batch, heads, tokens, head_dim], dense.

    What comes after is computed from these very tensors, so autograd gives gradients by them. The model is left as it
    was, also after an error. Raises StudioError for attention layers that do not know their number.
    """
    token = _ACTIVE.set(outputs := {})
    try:
        with switched_attention(model, _NAME):
            yield outputs
    finally:
        _ACTIVE.reset(token)


_ACTIVE: ContextVar[dict[int, Tensor]] = ContextVar("outputs of the layers")


def _attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
    number = getattr(module, "layer_idx", None)
    if number is None:
        raise StudioError("expected attention layers that know their number (layer_idx), got one that does not")
    out, weights = AttentionInterface()["sdpa"](module, q, k, v, mask, **kwargs)  # [batch, tokens, heads, head_dim]
    out = _ACTIVE.get()[number] = out.transpose(1, 2)
    return out.transpose(1, 2), weights


AttentionInterface.register(_NAME, _attend)
# Without a mask function of the same name transformers makes no mask at all, and causality would be lost.
AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
