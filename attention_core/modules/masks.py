"""The masks of nn.MultiheadAttention, read as what they are: padding, allowed pairs, or numbers to add."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pattern_studio.errors import StudioError


@dataclass(frozen=True)
class Masks:
    """`padding` bool [batch, kv_len], True is padding; `allowed` bool [batch or 1, heads or 1, q_len,
    kv_len], True may be used; `bias` in the scores' dtype, of a shape that broadcasts to [batch, heads,
    q_len, kv_len], added to the scaled scores. None where there is nothing to say.
    """

    padding: Tensor | None = None
    allowed: Tensor | None = None
    bias: Tensor | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to say."""
        return self.padding is None and self.allowed is None and self.bias is None


def read_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int, q_len: int, kv_len: int
) -> Masks:
    """Masks from the arguments of nn.MultiheadAttention.

    attn_mask [q_len, kv_len] or [batch * heads, q_len, kv_len], where slice n * heads + h belongs to
    item n and head h; key_padding_mask [batch, kv_len]. Bool: True is blocked. Float: added to the
    scores; one that holds only 0 and -inf (and needs no gradient) is read as the bool mask it stands for.
    """
    masks = Masks()
    if attn_mask is not None:
        table = _four(attn_mask, batch, heads, q_len, kv_len)
        masks = _one("attn_mask", table)
    if key_padding_mask is None:
        return masks
    if tuple(key_padding_mask.shape) != (batch, kv_len):
        raise StudioError(
            f"key_padding_mask must have the shape [batch, kv_len] = {[batch, kv_len]}, "
            f"got {list(key_padding_mask.shape)}"
        )
    keys = _one("key_padding_mask", key_padding_mask)
    padding = None if keys.allowed is None else ~keys.allowed
    bias = masks.bias
    if keys.bias is not None:
        more = keys.bias[:, None, None, :]
        bias = more if bias is None else bias + more
    return Masks(padding, masks.allowed, bias)


def _four(mask: Tensor, batch: int, heads: int, q_len: int, kv_len: int) -> Tensor:
    if mask.ndim == 2 and tuple(mask.shape) == (q_len, kv_len):
        return mask[None, None]
    if mask.ndim == 3 and tuple(mask.shape) == (batch * heads, q_len, kv_len):
        return mask.reshape(batch, heads, q_len, kv_len)
    raise StudioError(
        f"attn_mask must have the shape [q_len, kv_len] = {[q_len, kv_len]} or [batch * heads, q_len, kv_len] = "
        f"{[batch * heads, q_len, kv_len]}, got {list(mask.shape)}"
    )


def _one(name: str, mask: Tensor) -> Masks:
    if mask.dtype == torch.bool:
        return Masks(allowed=~mask)
    if not mask.is_floating_point():
        raise StudioError(
            f"{name} must be bool (True is blocked) or floating point (added to scores), got {mask.dtype}"
        )
    # What a mask of 0 and -inf says can be done by tiles; other numbers need every score.
    if not mask.requires_grad and bool(((mask == 0) | (mask == -torch.inf)).all()):
        return Masks(allowed=mask == 0)
    return Masks(bias=mask)
