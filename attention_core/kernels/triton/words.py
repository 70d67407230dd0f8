"""Bit masks as the fused programs read them: whole words along the side that streams."""

from __future__ import annotations

import torch
from torch import Tensor

from .lists import TileLists

AT_ONCE = 256  # masks turned together: 32 MB of bits of 128 x 128


def words_of(lists: TileLists, tile: int, by_key: bool) -> Tensor:
    """The masks of lists for steps of `tile` positions; made once for lists, without a host sync.

    A thread holds few of the positions that stay and many of the tile's for each of them. So where a step is of one
    unit its masks are int32 [masks, block of the side that stays, block of the other // 32]: a row is loaded in a few
    words, where bytes of queries take a load a pair. Steps of several units, or of no whole words, read `lists.masks`
    as it is.
    """
    if not lists.has_bits or lists.granule < tile or tile % 32:
        return lists.masks
    if by_key:
        return lists.masks.view(torch.int32)
    kept = vars(lists)
    if "_words" not in kept:
        kept["_words"] = _turned(lists.masks)
    return kept["_words"]


def walked(lists: TileLists, tile: int, by_key: bool) -> tuple[Tensor, ...]:
    """`lists.walked` with the masks that steps of `tile` positions read."""
    *before, _, head_group, jobs = lists.walked
    return *before, words_of(lists, tile, by_key), head_group, jobs


def _turned(masks: Tensor) -> Tensor:
    """uint8 [masks, keys, queries / 8] as int32 [masks, queries, keys / 32].

    >>> masks = torch.zeros(1, 32, 2, dtype=torch.uint8)
    >>> masks[0, 31, 1] = 1  # query 8 sees key 31
    >>> _turned(masks)[0].flatten().tolist()[7:10]
    [0, -2147483648, 0]
    """
    count, keys, octets = masks.shape
    words = masks.new_empty((count, octets * 8, keys // 32), dtype=torch.int32)
    within, into = (torch.arange(n, device=masks.device) for n in (8, 32))
    for begin in range(0, count, AT_ONCE):
        some = masks[begin : begin + AT_ONCE]
        bits = some[..., None].bitwise_right_shift(within.to(some.dtype)).bitwise_and(1).flatten(2)
        turned = bits.mT.unflatten(2, (-1, 32)).long() << into
        words[begin : begin + AT_ONCE] = turned.sum(-1).int()
    return words
