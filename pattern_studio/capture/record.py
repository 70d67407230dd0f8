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
from pattern_studio.capture.layer import LayerCapture
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
    if model.training:
        raise StudioError("expected a model in eval mode, got one in training mode; call model.eval()")
    recorder = _Recorder(frozenset(layers), dtype)
    token = _ACTIVE.set(recorder)
    try:
        # no_grad and not inference_mode: tensors made under the latter can't take part in autograd later on.
        with _recording_attention(model), torch.no_grad():
            model.base_model(**inputs)  # the base model computes no logits
    finally:
        _ACTIVE.reset(token)
    scale, causal = recorder.common()
    return Capture(recorder.kept, model_name, text, tokens, scale, causal)


class _Recorder:
    """Keeps what the chosen layers are given, and refuses attention that a capture can't describe."""

    def __init__(self, layers: frozenset[int], dtype: torch.dtype) -> None:
        self.layers, self.dtype = layers, dtype
        self.kept: dict[int, LayerCapture] = {}
        self.met: set[Any] = set()
        self.scales_and_causal: set[tuple[float, bool]] = set()

    def see(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
    ) -> None:
        """q: [1, heads, q_len, head_dim]; k, v: [1, kv_heads, kv_len, head_dim]; mask: bool, True where allowed."""
        number = getattr(module, "layer_idx", None)
        self.met.add(number)
        # Checked in every layer: scaled_dot_product_attention would drop some of these and so falsify later layers.
        if extras := [name for name in _EXTRAS if kwargs.get(name) is not None]:
            raise StudioError(
                f"expected scores that are scale * q.k, got attention with {', '.join(extras)} in layer {number}; "
                "a capture can't hold it, choose another model"
            )
        if number not in self.layers:
            return
        if number in self.kept or q.shape[0] != 1 or q.shape[2] != k.shape[2]:
            raise StudioError(
                f"expected one self-attention over one sequence in layer {number}, got q {list(q.shape)} and k "
                f"{list(k.shape)}{' a second time' * (number in self.kept)}; pass batch 1 and no cache, and for an "
                "encoder-decoder model its encoder"
            )
        flag = kwargs.get("is_causal")
        causal = _is_causal(mask, bool(getattr(module, "is_causal", True) if flag is None else flag), number)
        scale = kwargs.get("scaling")
        self.scales_and_causal.add((q.shape[-1] ** -0.5 if scale is None else float(scale), causal))
        try:
            self.kept[number] = LayerCapture(*(self._copy(tensor) for tensor in (q, k, v)))
        except StudioError as error:
            raise StudioError(f"layer {number}: {error}") from error

    def common(self) -> tuple[float, bool]:
        """The scale and causality of all chosen layers."""
        if missing := sorted(self.layers - self.kept.keys()):
            met = sorted(number for number in self.met if isinstance(number, int))
            raise StudioError(
                f"expected to meet layers {sorted(self.layers)}, got no attention from {missing}; choose among those "
                f"met: {met or 'none, as this model does not use AttentionInterface or does not number its layers'}"
            )
        if len(self.scales_and_causal) != 1:
            raise StudioError(
                "expected layers of one scale and one causality, got (scale, causal) "
                f"{sorted(self.scales_and_causal)}; record them into separate captures"
            )
        return next(iter(self.scales_and_causal))

    def _copy(self, tensor: Tensor) -> Tensor:
        # copy=True: a view would keep the whole projection, of every head and in the model's dtype, alive.
        return tensor[0].to(device="cpu", dtype=self.dtype, copy=True, memory_format=torch.contiguous_format)


_ACTIVE: ContextVar[_Recorder] = ContextVar("active recorder")


def _is_causal(mask: Tensor | None, flag: bool, number: int) -> bool:
    """Whether the layer's dense mask is causal (True) or full (False); anything else is an error."""
    if mask is None:
        return flag
    if mask.dtype == torch.bool:
        allowed = mask[0]  # [1 or heads, q_len, kv_len]
        if (allowed == torch.ones_like(allowed[0]).tril()).all():
            return True
        if allowed.all():
            return False
    raise StudioError(
        f"expected a causal or a full dense mask, got another one in layer {number} (a sliding window, padding or "
        "packed documents); a capture can't hold it, choose another layer or a text without padding"
    )


def _attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
    _ACTIVE.get().see(module, q, k, v, mask, kwargs)
    return AttentionInterface()["sdpa"](module, q, k, v, mask, **kwargs)


AttentionInterface.register(_NAME, _attend)
# Without a mask function of the same name transformers makes no mask at all, and causality would be lost.
AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])


@contextmanager
def _recording_attention(model: PreTrainedModel) -> Iterator[None]:
    """Switches attention to `_attend` and the key-value cache off, and afterwards both back."""
    configs = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    for config in configs:  # grows: a config can hold others, and switching reaches those too
        configs.extend(sub for key in config.sub_configs if (sub := getattr(config, key, None)) is not None)
    before = [(config, config._attn_implementation, getattr(config, "use_cache", None)) for config in configs]
    try:
        model.set_attn_implementation(_NAME)
        for config, _, use_cache in before:
            if use_cache:
                config.use_cache = False
        yield
    finally:
        for config, implementation, use_cache in before:  # parents first: they also set what they hold
            config._attn_implementation = implementation
            if use_cache:
                config.use_cache = use_cache
