"""The same TileLists for the same tensors, so that what is kept with lists serves operators too."""

from __future__ import annotations

import weakref

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from .lists import TileLists

# From the first tensor of lists to the others, looked at only to see whether they are still the same, and the lists.
# These hold aliases, so that an entry goes with the tensors of the plan. Threads at worst make lists twice.
_KNOWN = WeakIdKeyDictionary()


def interned(tensors: list[Tensor]) -> TileLists:
    """Lists of an operator's tensors, which come in the order of TileLists' fields."""
    known = _KNOWN.get(tensors[0])
    if known is None or any(seen() is not x for seen, x in zip(known[0], tensors[1:], strict=True)):
        known = [weakref.ref(x) for x in tensors[1:]], TileLists(*(x.detach() for x in tensors))
        _KNOWN[tensors[0]] = known
    return known[1]
