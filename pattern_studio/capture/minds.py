"""What a model minds of each layer of a capture: its rows, and how its outputs enter the residual stream, checked."""

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
class LayerMinds:
    """What the model minds of one layer.

    Args:
        rows: [heads, tokens], from 0 up: how much the loss minds a row of a head's attention, the mean of `(g . o)^2`
            over draws of next tokens, `g` the loss's gradient by the row's output `o`, in nats squared. Only ratios
            count.
        projection: [width, heads * head_dim]: what turns the heads' outputs, one after the other, into what is added
            to the residual stream, in a dtype of its own.
        stream: [tokens], above 0: the squared length of the residual stream where it enters the layer.
    """

    rows: Tensor
    projection: Tensor
    stream: Tensor

    def named(self) -> dict[str, Tensor]:
        """The tensors under the names that they have in a file."""
        return {"rows": self.rows, "projection": self.projection, "stream": self.stream}


@dataclass(frozen=True, eq=False)
class Minds:
    """By layer, what the model minds of a capture; `pattern_studio.learned.measured_minds` measures it.

    >>> from dataclasses import replace
    >>> from pattern_studio.capture import bundled
    >>> some = LayerMinds(torch.ones(9, 1024), torch.ones(576, 576), torch.ones(1024))
    >>> replace(bundled(), minds=Minds({20: some, 7: some})).minds.layers[20].projection.shape
    torch.Size([576, 576])
    """

    layers: Mapping[int, LayerMinds]

    def to(self, device: str | torch.device) -> Minds:
        """The same on a device."""
        return Minds(
            {n: LayerMinds(*(part.to(device) for part in one.named().values())) for n, one in self.layers.items()}
        )


def checked_minds(minds: object, capture: Capture) -> Minds:
    """What a capture may hold: of each of its layers, in the order of their numbers.

    Raises:
        StudioError: of other layers, another text or model, another dtype, a value that is NaN, infinite or negative,
            a residual stream of length 0, or no row that the loss minds.

    >>> from pattern_studio.capture import bundled
    >>> some = LayerMinds(torch.ones(9, 1024), torch.ones(576, 576), torch.ones(1024))
    >>> list(checked_minds(Minds({20: some, 7: some}), bundled()).layers)
    [7, 20]
    """
    if not isinstance(minds, Minds) or not isinstance(minds.layers, Mapping):
        raise StudioError(f"expected what the model minds as Minds, got {type(minds).__name__}; see measured_minds")
    if minds.layers.keys() != capture.layers.keys():
        raise StudioError(
            f"expected what the model minds of every layer of the capture, {short(list(capture.layers))}, or of none, "
            f"got {short(list(minds.layers))}; measure them in one call"
        )
    for number in capture.layers:
        _check(number, minds.layers[number], capture)
    if not any(minds.layers[number].rows.any() for number in capture.layers):
        raise StudioError("expected a row that the loss minds, got 0 for all; leave rows, projection and stream out")
    return Minds({number: minds.layers[number] for number in capture.layers})


def _check(number: int, minds: object, capture: Capture) -> None:
    if not isinstance(minds, LayerMinds):
        raise StudioError(f"expected LayerMinds of layer {number}, got {type(minds).__name__}; see measured_minds")
    layer = capture.layers[number]
    shapes = {
        "rows": (layer.heads, layer.tokens),
        "projection": (None, layer.heads * layer.head_dim),
        "stream": (layer.tokens,),
    }
    for name, tensor in minds.named().items():
        wanted, got = shapes[name], list(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        fits = isinstance(tensor, Tensor) and tensor.dim() == len(wanted) and tensor.numel() > 0
        if not fits or any(size not in (None, have) for size, have in zip(wanted, tensor.shape, strict=True)):
            said = ", ".join("width" if size is None else str(size) for size in wanted)
            raise StudioError(
                f"expected {name} of layer {number} to be [{said}], got {got}; measure the model and text that were "
                "recorded, with all heads"
            )
        if tensor.dtype not in _DTYPES:
            raise StudioError(
                f"expected {name} of layer {number} in {', '.join(map(str, _DTYPES))}, got {tensor.dtype}; convert it"
            )
        if not tensor.isfinite().all() or (name != "projection" and (tensor < 0).any()):
            said = "finite" if name == "projection" else "finite and from 0 up"
            raise StudioError(
                f"expected {name} of layer {number} to be {said}, got another value; keep it in float32, "
                "or measure it again"
            )
    if not minds.stream.all():
        raise StudioError(f"expected a residual stream that is longer than 0 in layer {number}; measure it again")
