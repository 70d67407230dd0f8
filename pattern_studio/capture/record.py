"""Records q, k, v from a transformers model while it reads a text.

For one forward pass the model is switched to an attention function of ours, which keeps what the chosen layers are
given and leaves the work to scaled_dot_product_attention. Source: transformers' AttentionInterface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from pattern_studio.capture.capture import Capture
from pattern_studio.capture.recorder import Recorder
from pattern_studio.errors import StudioError

_NAME = "pattern_studio_record"
# What some models add to the scores: with it, q and k alone no longer give the attention.
_EXTRAS = ("position_bias", "s_aux", "softcap")


def record(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    *,
    layers: Sequence[int],
    model_name: str,
    text: str,
    tokens: tuple[str, ...],
    dtype: torch.dtype = torch.float16,
    kv_heads: Sequence[int] | None = None,
) -> Capture:
    """The capture of one forward pass; the model is left as it was, also after an error.

    Args:
        model: a transformers model in eval mode whose attention goes through AttentionInterface.
        inputs: what its forward takes, of batch 1, for instance {"input_ids": [1, tokens]}.
        layers: the layers to keep, by the model's own numbers (its attention modules' layer_idx).
        model_name: which model, with its version and licence.
        text: where the text is from, with its licence.
        tokens: one string per position.
        dtype: what q, k, v are cast to at once, layer by layer, on the CPU. Only the chosen layers are kept, no logits
            and no key-value cache.
        kv_heads: only these KV heads, each with all of its query heads, numbered anew from 0; by default all.

    Raises:
        StudioError: the model is training, a layer was not met, its attention is no plain causal or full softmax of
            scale * q.k (window, padding, soft cap, learned sinks, position bias, cross-attention), a value overflows.

    Example:
        >>> from transformers import LlamaConfig, LlamaModel
        >>> size = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)
        >>> model = LlamaModel(LlamaConfig(vocab_size=3, num_hidden_layers=2, **size)).eval()
        >>> inputs = {"input_ids": torch.tensor([[0, 2, 1]])}
        >>> capture = record(model, inputs, layers=[1], model_name="toy", text="none", tokens=("a", "c", "b"))
        >>> capture.layers[1].q.shape, capture.causal, capture.scale
        (torch.Size([2, 3, 4]), True, 0.5)
    """
    if not layers:
        raise StudioError("expected at least one layer to record, got none; choose some, for instance layers=[0]")
    recorder = Recorder(frozenset(layers), dtype, kv_heads=kv_heads)
    run_recorded(model, inputs, recorder)
    scale, causal = recorder.common()
    return Capture(recorder.kept, model_name, text, tokens, scale, causal)


def run_recorded(model: PreTrainedModel, inputs: Mapping[str, Tensor], recorder: Recorder) -> None:
    """One forward pass that a recorder watches; the model is left as it was, also after an error.

    Raises StudioError as `record` does.
    """
    if model.training:
        raise StudioError("expected a model in eval mode, got one in training mode; call model.eval()")
    token = _ACTIVE.set(recorder)
    try:
        # no_grad and not inference_mode: tensors made under the latter can't take part in autograd later on.
        with switched_attention(model, _NAME), torch.no_grad():
            model.base_model(**inputs)  # the base model computes no logits
    finally:
        _ACTIVE.reset(token)


_ACTIVE: ContextVar[Recorder] = ContextVar("active recorder")


def _attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
    number = getattr(module, "layer_idx", None)
    # Checked in every layer: scaled_dot_product_attention would drop some of these and so falsify later layers.
    if extras := [name for name in _EXTRAS if kwargs.get(name) is not None]:
        raise StudioError(
            f"expected scores that are scale * q.k, got attention with {', '.join(extras)} in layer {number}; "
            "a capture can't hold it, choose another model"
        )
    flag = kwargs.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if flag is None else flag)
    _ACTIVE.get().see(number, q, k, v, mask=mask, causal=causal, scale=kwargs.get("scaling"))
    return AttentionInterface()["sdpa"](module, q, k, v, mask, **kwargs)


AttentionInterface.register(_NAME, _attend)
# Without a mask function of the same name transformers makes no mask at all, and causality would be lost.
AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])


@contextmanager
def switched_attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Switches to the attention function registered as `name` and the key-value cache off, and afterwards both back."""
    configs = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    for config in configs:  # grows: a config can hold others, and switching reaches those too
        configs.extend(sub for key in config.sub_configs if (sub := getattr(config, key, None)) is not None)
    before = [(config, config._attn_implementation, getattr(config, "use_cache", None)) for config in configs]
    try:
        model.set_attn_implementation(name)
        for config, _, use_cache in before:
            if use_cache:
                config.use_cache = False
        yield
    finally:
        for config, implementation, use_cache in before:  # parents first: they also set what they hold
            config._attn_implementation = implementation
            if use_cache:
                config.use_cache = use_cache
