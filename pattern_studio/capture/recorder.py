"""Recorder: keeps what the chosen layers are given, and refuses attention that a capture can't describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pattern_studio.capture.layer import LayerCapture
from pattern_studio.errors import StudioError


class Recorder:
    """Takes each attention call of a forward pass and keeps those of the chosen layers, on the CPU.

    Args:
        layers: the layers to keep; None keeps every layer that a capture can hold and lists the others in `skipped`.
        dtype: what q, k, v are cast to at once.
        kv_heads: the KV heads to keep, each with all of its query heads; None keeps all.
        keep: where a kept layer goes instead of `kept`, for instance into a file.
        progress: told the number of each layer when it is kept.
    """

    def __init__(
        self,
        layers: frozenset[int] | None,
        dtype: torch.dtype,
        *,
        kv_heads: Sequence[int] | None = None,
        keep: Callable[[int, LayerCapture], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.layers, self.dtype, self.kv_heads, self.progress = layers, dtype, kv_heads, progress
        self.kept: dict[int, LayerCapture] = {}
        self.keep = keep or self.kept.__setitem__
        self.numbers: list[int] = []
        self.skipped: dict[int, str] = {}
        self.met: set[Any] = set()
        self.scales_and_causal: set[tuple[float, bool]] = set()

    def see(
        self, number: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, causal: bool, scale: float | None
    ) -> None:
        """q: [1, heads, q_len, head_dim]; k, v: [1, kv_heads, kv_len, head_dim]; mask: bool, True where allowed.

        `causal` says what no mask means; `scale` None is 1 / sqrt(head_dim).

        Raises:
            StudioError: a chosen layer's attention is none that a capture can hold.
        """
        self.met.add(number)
        if not isinstance(number, int) or (self.layers is not None and number not in self.layers):
            return
        if number in self.numbers or q.shape[0] != 1 or q.shape[2] != k.shape[2]:
            raise StudioError(
                f"expected one self-attention over one sequence in layer {number}, got q {list(q.shape)} and k "
                f"{list(k.shape)}{' a second time' * (number in self.numbers)}; pass batch 1 and no cache, and for an "
                "encoder-decoder model its encoder"
            )
        kind = dense_mask_kind(mask, causal)
        if kind is None:
            band = window_of(mask)
            if self.layers is None:
                self.skipped[number] = f"its dense mask is {f'{band}, ' if band else ''}neither causal nor full"
                return
            what = f"a sliding window, {band}" if band else "a sliding window, padding or packed documents"
            raise StudioError(
                f"expected a causal or a full dense mask, got another one in layer {number} ({what}); a "
                "capture can't hold it, choose another layer or a text without padding"
            )
        self.scales_and_causal.add((q.shape[-1] ** -0.5 if scale is None else float(scale), kind))
        try:
            layer = LayerCapture(*(self._copy(tensor, k.shape[1]) for tensor in (q, k, v)))
        except StudioError as error:
            raise StudioError(f"layer {number}: {error}") from error
        self.keep(number, layer)
        self.numbers.append(number)
        if self.progress is not None:
            self.progress(number)

    def common(self) -> tuple[float, bool]:
        """The scale and causality of all kept layers.

        Raises:
            StudioError: a chosen layer was not met, none was kept, or kept layers differ.
        """
        missing = sorted((self.layers or frozenset()) - set(self.numbers))
        if missing or not self.numbers:
            met = sorted(number for number in self.met if isinstance(number, int))
            skipped = f" ({self.skipped})" if self.skipped else ""
            asked = sorted(self.layers) if self.layers is not None else "some"
            raise StudioError(
                f"expected to meet layers {asked}, got no attention from {missing or 'any'}{skipped}; choose among "
                f"those met: {met or 'none, as its attention goes another way or does not number its layers'}"
            )
        if len(self.scales_and_causal) != 1:
            raise StudioError(
                "expected layers of one scale and one causality, got (scale, causal) "
                f"{sorted(self.scales_and_causal)}; record them into separate captures"
            )
        return next(iter(self.scales_and_causal))

    def _copy(self, tensor: Tensor, kv_heads: int) -> Tensor:
        one = tensor[0]
        if self.kv_heads is not None:
            wrong = [head for head in self.kv_heads if not 0 <= head < kv_heads]
            if wrong or not self.kv_heads or len(set(self.kv_heads)) < len(self.kv_heads):
                raise StudioError(
                    f"expected distinct KV heads from 0 to {kv_heads - 1}, got {list(self.kv_heads)}; choose from these"
                )
            one = one.unflatten(0, (kv_heads, -1))[list(self.kv_heads)].flatten(0, 1)
        # copy=True: a view would keep the whole projection, of every head and in the model's dtype, alive.
        return one.to(device="cpu", dtype=self.dtype, copy=True, memory_format=torch.contiguous_format)


def dense_mask_kind(mask: Tensor | None, causal: bool) -> bool | None:
    """Whether the layer's dense mask is causal (True) or full (False); None where it is another one."""
    if mask is None:
        return causal
    allowed = _allowed(mask)
    if allowed is None:
        return None
    if (allowed == torch.ones_like(allowed.reshape(-1, *allowed.shape[-2:])[0]).tril()).all():
        return True
    return False if allowed.all() else None


def window_of(mask: Tensor | None) -> str | None:
    """The pattern of a mask that is the same window for every query, as text; None where it is none.

    >>> window_of(torch.ones(4, 4, dtype=torch.bool).tril(1).triu(-2))
    'window(2, 1)'
    """
    allowed = None if mask is None else _allowed(mask)
    if allowed is None or not allowed.any():
        return None
    first = allowed.reshape(-1, *allowed.shape[-2:])[0]
    query, key = first.nonzero().unbind(1)
    left, right = int((query - key).max()), int((key - query).max())
    if left < 0 or right < 0 or not (allowed == torch.ones_like(first).tril(right).triu(-left)).all():
        return None
    return f"window({left}, {right})"


def _allowed(mask: Tensor) -> Tensor | None:
    """bool [1 or heads, q_len, kv_len] or [q_len, kv_len]; None where more than 0 and -inf is added to scores."""
    if mask.dtype != torch.bool:
        if not ((mask == 0) | (mask <= torch.finfo(mask.dtype).min / 2)).all():
            return None
        mask = mask == 0
    return mask[0] if mask.dim() == 4 else mask
