"""What a model's loss on a capture's text minds of each layer's attention output: gradients, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as short  # what a hostile file says may be megabytes long
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pattern_studio.errors import StudioError

if TYPE_CHECKING:
    from pattern_studio.capture.capture import Capture

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True, eq=False)  # tensors have no single truth value
class LossGradients:
    """By layer, the gradients of a text's summed loss by the attention outputs, [draws, heads, tokens, head_dim].

    In nats for a unit of the output. A draw is a set of next tokens: the text's own first, then the model's.
    `pattern_studio.learned.loss_gradients` measures them, and a capture of the text may hold them.

    >>> from dataclasses import replace
    >>> from pattern_studio.capture import bundled
    >>> ones = LossGradients({number: torch.ones(1, 9, 1024, 64) for number in (7, 20)})
    >>> replace(bundled(), gradients=ones).gradients.of(bundled(), 20).shape
    torch.Size([1, 9, 1024, 64])
    """

    layers: Mapping[int, Tensor]

    def of(self, capture: Capture, layer: int) -> Tensor:
        """A layer's gradients; a StudioError where there are none, or not those of the capture's text and model."""
        if layer not in self.layers:
            raise StudioError(
                f"expected gradients of layer {layer}, got those of {sorted(self.layers)}; take them of the model "
                "that was recorded"
            )
        shape, found = list(capture.layers[layer].q.shape), self.layers[layer]
        if found.dim() != 4 or not len(found) or list(found.shape[1:]) != shape:
            raise StudioError(
                f"expected gradients [draws, {', '.join(map(str, shape))}] in layer {layer}, as its queries, got "
                f"{list(found.shape)}; take them of the model and text that were recorded"
            )
        return found

    def to(self, target: str | torch.device | torch.dtype) -> LossGradients:
        """The same on a device, or in another dtype.

        >>> LossGradients({3: torch.ones(1, 2, 3, 4)}).to(torch.bfloat16).layers[3].dtype
        torch.bfloat16
        """
        return LossGradients({number: tensor.to(target) for number, tensor in self.layers.items()})


def checked_gradients(gradients: object, capture: Capture) -> LossGradients:
    """The gradients that a capture may hold: of each of its layers, in the order of their numbers.

    All are float16, bfloat16 or float32, of one dtype and one number of draws, finite, and shaped as the layer's
    queries; the capture's own dtype may be another.

    Raises:
        StudioError: they are of other layers, another text or model, another dtype, or a value is NaN or infinite.

    >>> from pattern_studio.capture import bundled
    >>> found = LossGradients({number: torch.ones(1, 9, 1024, 64) for number in (20, 7)})
    >>> list(checked_gradients(found, bundled()).layers)
    [7, 20]
    """
    if not isinstance(gradients, LossGradients) or not isinstance(gradients.layers, Mapping):
        raise StudioError(f"expected gradients as LossGradients, got {type(gradients).__name__}; see loss_gradients")
    if gradients.layers.keys() != capture.layers.keys():
        raise StudioError(
            f"expected gradients of every layer of the capture, {short(list(capture.layers))}, or no gradients, got "
            f"those of {short(list(gradients.layers))}; measure them with layers= the capture's"
        )
    kinds: set[tuple[torch.dtype, int]] = set()
    for number in capture.layers:
        if not isinstance(gradients.layers[number], Tensor):
            raise StudioError(
                f"expected gradients of layer {number} as a tensor, got {type(gradients.layers[number]).__name__}; "
                "see loss_gradients"
            )
        tensor = gradients.of(capture, number)
        kinds.add((tensor.dtype, len(tensor)))
        if tensor.dtype not in _DTYPES:
            raise StudioError(
                f"expected gradients in {', '.join(map(str, _DTYPES))}, got {tensor.dtype} in layer {number}; convert "
                "them, for instance with .to(torch.float32)"
            )
        if len(kinds) > 1:
            raise StudioError(
                f"expected gradients of one dtype and one number of draws, got {tensor.dtype} and {len(tensor)} draws "
                f"in layer {number}, unlike the layers before it; measure all layers in one call"
            )
        if wrong := int((~tensor.isfinite()).sum()):
            raise StudioError(
                f"expected gradients of layer {number} to be finite, got {wrong} NaN or infinite values; float16 ends "
                "at 65504, so keep them in bfloat16 or float32"
            )
    return LossGradients({number: gradients.layers[number] for number in capture.layers})
