"""Records q, k, v from any torch code that calls scaled_dot_product_attention. Source: torch's TorchFunctionMode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from pattern_studio.capture.capture import Capture
from pattern_studio.capture.recorder import Recorder
from pattern_studio.errors import StudioError


class recording(TorchFunctionMode):  # noqa: N801 - used as `with recording() as seen:`, like torch.no_grad
    """Watches scaled_dot_product_attention in this thread; call number n is layer n.

    Only one forward pass of batch 1, without a cache. A call's own mask must be causal or full. Layers that
    compute attention in another way, such as nn.MultiheadAttention with need_weights=True, are not seen.

    Args:
        layers: the calls to keep, from 0; by default all.
        dtype: what q, k, v are cast to at once, call by call, on the CPU.

    Example:
        >>> q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))
        >>> with recording(dtype=torch.float32) as seen:
        ...     _ = scaled_dot_product_attention(q, k, v, is_causal=True)
        >>> capture = seen.capture(model_name="toy", text="none", tokens=tuple("abcde"))
        >>> torch.equal(capture.layers[0].q, q[0]), capture.causal, capture.scale
        (True, True, 0.5)
    """

    def __init__(self, layers: Sequence[int] | None = None, dtype: torch.dtype = torch.float16) -> None:
        super().__init__()
        self._recorder = Recorder(None if layers is None else frozenset(layers), dtype)
        self._calls = 0

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is scaled_dot_product_attention:
            self._see(*args, **given)
        if func is not functional.multi_head_attention_forward:
            return func(*args, **given)
        # A mode does not see what a function does inside that it was itself told of: nn.MultiheadAttention's call.
        thread = get_ident()

        def seen(*inner: Any, **options: Any) -> Tensor:
            if get_ident() == thread:
                self._see(*inner, **options)
            return scaled_dot_product_attention(*inner, **options)

        with mock.patch.object(functional, "scaled_dot_product_attention", seen):
            return func(*args, **given)

    def _see(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        if dropout_p:
            raise StudioError(
                f"expected attention without dropout, got dropout_p={dropout_p}; call model.eval() before recording"
            )
        number, self._calls = self._calls, self._calls + 1
        with torch.no_grad():
            q, k, v = (tensor.detach() for tensor in (query, key, value))
            self._recorder.see(number, q, k, v, mask=attn_mask, causal=is_causal, scale=scale)

    def capture(self, *, model_name: str, text: str, tokens: tuple[str, ...]) -> Capture:
        """What was recorded; see Capture for the words.

        Raises:
            StudioError: a call was not met or has another mask, calls differ in scale or causality, tokens don't fit.
        """
        scale, causal = self._recorder.common()
        if skipped := sorted(self._recorder.skipped):
            raise StudioError(
                f"expected causal or full dense masks, got other ones in calls {skipped}; choose layers="
                f"{sorted(self._recorder.numbers)} or some of them"
            )
        return Capture(self._recorder.kept, model_name, text, tokens, scale, causal)
