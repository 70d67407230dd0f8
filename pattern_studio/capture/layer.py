"""What one attention layer was given: its queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pattern_studio.errors import StudioError


@dataclass(frozen=True, eq=False)  # tensors have no single truth value, so layers compare by identity
class LayerCapture:
    """q, k and v of one layer, after the rotary embedding and before attention.

    Args:
        q: [heads, tokens, head_dim].
        k: [kv_heads, tokens, head_dim]; kv_heads divides heads, query head h reads KV head h // (heads // kv_heads).
        v: as k.

    All three are of one floating dtype, on one device, finite and not empty.

    Raises:
        StudioError: shapes, dtypes or devices disagree, or a value is NaN or infinite.

    Example:
        >>> import torch
        >>> layer = LayerCapture(torch.zeros(6, 10, 4), torch.zeros(2, 10, 4), torch.zeros(2, 10, 4))
        >>> layer.heads, layer.kv_heads, layer.tokens, layer.head_dim
        (6, 2, 10, 4)
    """

    q: Tensor
    k: Tensor
    v: Tensor

    def __post_init__(self) -> None:
        for name, tensor in self.named().items():
            if not isinstance(tensor, Tensor) or tensor.dim() != 3 or not tensor.is_floating_point():
                got = f"{list(tensor.shape)} {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
                raise StudioError(
                    f"expected {name} to be floating [heads, tokens, head_dim], got {got}; drop the batch"
                )
            if tensor.numel() == 0:
                raise StudioError(
                    f"expected {name} to hold values, got shape {list(tensor.shape)}; record at least one token"
                )
            if (tensor.dtype, tensor.device) != (self.q.dtype, self.q.device):
                raise StudioError(
                    f"expected {name} as q, of {self.q.dtype} on {self.q.device}, "
                    f"got {tensor.dtype} on {tensor.device}; convert one of them"
                )
            if tensor.shape[1:] != self.q.shape[1:]:
                raise StudioError(
                    f"expected {name} to have q's tokens and head_dim {list(self.q.shape[1:])}, "
                    f"got {list(tensor.shape[1:])}; record both in one forward pass"
                )
        if self.k.shape != self.v.shape:
            raise StudioError(
                f"expected k and v of one shape, got k {list(self.k.shape)} and v {list(self.v.shape)}; "
                "record both in one forward pass"
            )
        if self.heads % self.kv_heads:
            raise StudioError(
                f"expected the KV heads to divide the query heads, got {self.kv_heads} KV heads for {self.heads}; "
                "each KV head must serve equally many query heads"
            )
        for name, tensor in self.named().items():
            if not tensor.isfinite().all():
                raise StudioError(
                    f"expected {name} to be finite, got {int((~tensor.isfinite()).sum())} NaN or infinite values; "
                    "float16 ends at 65504, so record in bfloat16 or float32"
                )

    def named(self) -> dict[str, Tensor]:
        """The tensors under the names that they have in a file: q, k, v."""
        return {"q": self.q, "k": self.k, "v": self.v}

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.q.shape[0]

    @property
    def kv_heads(self) -> int:
        """Key and value heads, a divisor of `heads`."""
        return self.k.shape[0]

    @property
    def tokens(self) -> int:
        """Positions; queries and keys stand at 0 ... tokens - 1."""
        return self.q.shape[1]

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.q.shape[2]
