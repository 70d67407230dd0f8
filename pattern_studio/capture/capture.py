"""A capture: q, k and v of a real model on real text."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short  # what a hostile file says may be megabytes long

import torch

from pattern_studio.capture.container import reason
from pattern_studio.capture.format import decode, dtype_name, encode
from pattern_studio.capture.gradients import LossGradients, checked_gradients
from pattern_studio.capture.layer import LayerCapture
from pattern_studio.capture.minds import Minds, checked_minds
from pattern_studio.capture.sensitivity import checked_sensitivity
from pattern_studio.errors import StudioError

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)  # tensors have no single truth value, so captures compare by identity
class Capture:
    """q, k and v of chosen layers of one model, over one text.

    Args:
        layers: layer number -> its q, k, v; all layers have the same tokens and dtype, their heads may differ.
        model: which model, with its version and licence.
        text: where the text is from, with its licence.
        tokens: one string per position.
        scale: what q.k is multiplied by before the softmax, usually 1 / sqrt(head_dim).
        causal: whether the model's own dense mask is causal; if not, every query sees every key.
        sensitivity: how much the model's loss minds each of these layers, one weight for each in the order of their
            numbers, from 0 up; only their ratios count. None where it was not measured (metrics/sensitivity.py does).
        gradients: of the loss on this text by the attention outputs of each of these layers, which patterns can be
            fitted by; in a dtype of their own. None where they were not measured (learned/loss_gradients.py does).
        minds: which rows of each of these layers the loss minds, and how their outputs enter the residual stream. None
            where it was not measured (learned/measured_minds.py does).

    Raises:
        StudioError: a part has the wrong type, or parts disagree.

    Example:
        >>> layer = LayerCapture(torch.ones(2, 3, 4), torch.ones(1, 3, 4), torch.ones(1, 3, 4))
        >>> capture = Capture({5: layer}, "toy", "made up, CC0", ("a", "b", "c"), scale=0.5, causal=True)
        >>> capture.dtype, len(capture.tokens), capture.layers[5].kv_heads
        (torch.float32, 3, 1)
    """

    layers: Mapping[int, LayerCapture]
    model: str
    text: str
    tokens: tuple[str, ...]
    scale: float
    causal: bool
    sensitivity: tuple[float, ...] | None = None
    gradients: LossGradients | None = None
    minds: Minds | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.layers, Mapping) or not self.layers:
            raise StudioError(f"expected a mapping of at least one layer, got {short(self.layers)}; record a layer")
        for number, layer in self.layers.items():
            if type(number) is not int or number < 0 or not isinstance(layer, LayerCapture):
                raise StudioError(
                    f"expected layer numbers from 0 up, each with a LayerCapture, got {short(number)} with a "
                    f"{type(layer).__name__}; build each layer with LayerCapture(q, k, v)"
                )
        for name, text in (("model", self.model), ("text", self.text)):
            if not isinstance(text, str) or not text.strip():
                raise StudioError(f"expected the {name} in words, with its licence, got {short(text)}; state it")
        if not isinstance(self.tokens, tuple | list) or not all(isinstance(token, str) for token in self.tokens):
            raise StudioError(f"expected tokens as strings, one per position, got {short(self.tokens)}; decode each id")
        try:
            "".join((self.model, self.text, *self.tokens)).encode()
        except UnicodeEncodeError as error:
            raise StudioError(
                f"expected model, text and tokens in valid Unicode, got a lone surrogate ({error.reason}); "
                "decode bytes with errors='replace'"
            ) from error
        number_given = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
        if not number_given or not math.isfinite(self.scale) or self.scale <= 0:
            raise StudioError(
                f"expected a finite scale above 0, got {short(self.scale)}; usually it is 1/sqrt(head_dim)"
            )
        if not isinstance(self.causal, bool):
            raise StudioError(f"expected causal to be True or False, got {short(self.causal)}; pass one of them")
        # Copies in order of layer: a capture must not change with the mapping or list that it was made from.
        object.__setattr__(self, "layers", dict(sorted(self.layers.items())))
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "scale", float(self.scale))
        for number, layer in self.layers.items():
            if layer.tokens != len(self.tokens):
                raise StudioError(
                    f"expected one token string per position, got {len(self.tokens)} strings for the {layer.tokens} "
                    f"positions of layers.{number}; record both from one text"
                )
            if layer.q.dtype != self.dtype or self.dtype not in _DTYPES:
                raise StudioError(
                    f"expected all layers in one of {', '.join(map(dtype_name, _DTYPES))}, got "
                    f"{dtype_name(layer.q.dtype)} in layers.{number} and {dtype_name(self.dtype)} in the first; "
                    "convert them"
                )
        if self.sensitivity is not None:
            object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity, len(self.layers)))
        if self.gradients is not None:
            object.__setattr__(self, "gradients", checked_gradients(self.gradients, self))
        if self.minds is not None:
            object.__setattr__(self, "minds", checked_minds(self.minds, self))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of q, k and v."""
        return next(iter(self.layers.values())).q.dtype

    def to(self, device: str | torch.device) -> Capture:
        """The same capture with its tensors on a device, where whatever measures it then computes.

        Raises:
            StudioError: torch has no such device here.

        Example:
            >>> from pattern_studio.capture import bundled
            >>> bundled().to("cpu").layers[7].q.device
            device(type='cpu')
        """
        try:
            layers = {
                number: LayerCapture(*(tensor.to(device) for tensor in layer.named().values()))
                for number, layer in self.layers.items()
            }
            gradients = self.gradients and self.gradients.to(device)
            minds = self.minds and self.minds.to(device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise StudioError(
                f"expected a device that torch can use here, got {device!r} ({str(error).splitlines()[0][:200]}); "
                "take 'cpu', or 'cuda' with a GPU and torch built for it"
            ) from error
        return replace(self, layers=layers, gradients=gradients, minds=minds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `pattern-studio-capture/1` file: .npz where the path ends so, else safetensors.

        The same capture gives the same bytes.

        Raises:
            StudioError: the path can't be written, or the capture or its gradients are bfloat16 and the file .npz.
        """
        data = encode(self, npz=os.fspath(path).endswith(".npz"))
        try:
            Path(path).write_bytes(data)
        except (OSError, ValueError) as error:
            raise StudioError(f"{path}: expected a writable path, got {reason(error)!r}; check its folder") from error

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes) -> Capture:
        """The capture in a file, given as its path or as its bytes; tensors on the CPU, exactly as saved.

        Nothing in the file is trusted: what isn't valid is refused, never repaired.

        Raises:
            StudioError: the file can't be read or holds no valid capture; the sentence says where and why.

        Example:
            >>> from pattern_studio.capture import bundled_path
            >>> Capture.load(bundled_path()).layers[7].q.shape
            torch.Size([9, 1024, 64])
        """
        if not isinstance(source, str | os.PathLike | bytes):
            raise StudioError(f"expected a path or the bytes of a capture, got {type(source).__name__}; read the file")
        try:
            return cls(**decode(source))
        except StudioError as error:
            where = "capture" if isinstance(source, bytes) else os.fspath(source)
            raise StudioError(f"{where}: {error}") from error
