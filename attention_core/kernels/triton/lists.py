"""TileLists: what the Triton kernels walk. Tensors only, nothing of patterns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TileLists:
    """Per line (a block of queries, or of keys in the transpose) the tiles of the other side.

    A *unit* is `granule` neighbouring positions, a *tile* `tile // granule` units gathered together:
    128 neighbouring keys or 128 single ones look alike to the tensor cores. Line `g * lines + n` of
    group `g` owns the full tiles `full_ptr[.] : full_ptr[. + 1]`, whose pairs are all allowed, and
    then the masked tiles `masked_ptr[.] : masked_ptr[. + 1]`. Units hold their first position. In a
    masked tile unit `u` allows query `i` and key `j` (rows counted from 0) where

        low[u] <= j - i <= high[u]   and   bits[u] < 0 or bit `i % block_q` of masks[bits[u], j % block_k]

    and unused units have an empty band. `jobs[g]` is the work table, int32 [groups, jobs, 4]:
    (line, part, parts, slot), most work first; a long line is worked in `parts` parts whose results
    go to scratch slots and are merged by `splits[g]`, int32 [groups, splits, 3]: (line, first slot,
    parts). Rows of -1 fill groups with fewer.

    Device tensors: full_ptr, masked_ptr int32 [groups * lines + 1]; full_units, masked_units, low,
    high, bits int32, at least [tiles * tile // granule]; masks uint8 [masks, block_k,
    ceil(block_q / 8)]; head_group int32 [heads or 1], or [batch, heads or 1] where batch entries
    differ. `numbers` stays on the host: int64 [8], the properties below in order.
    """

    numbers: Tensor
    full_ptr: Tensor
    full_units: Tensor
    masked_ptr: Tensor
    masked_units: Tensor
    low: Tensor
    high: Tensor
    bits: Tensor
    masks: Tensor
    head_group: Tensor
    jobs: Tensor
    splits: Tensor

    @cached_property
    def _numbers(self) -> list[int]:
        return self.numbers.tolist()

    @property
    def line_size(self) -> int:
        """Positions of a line: queries of a query block, or keys of a key block."""
        return self._numbers[0]

    @property
    def lines(self) -> int:
        """Lines of one group."""
        return self._numbers[1]

    @property
    def granule(self) -> int:
        """Neighbouring positions of a unit, a power of two."""
        return self._numbers[2]

    @property
    def tile(self) -> int:
        """Positions of a tile, a power of two."""
        return self._numbers[3]

    @property
    def block_q(self) -> int:
        """Queries of a tile of the layout."""
        return self._numbers[4]

    @property
    def block_k(self) -> int:
        """Keys of a tile of the layout."""
        return self._numbers[5]

    @property
    def slots(self) -> int:
        """Scratch slots for each batch and head: the parts of all split lines."""
        return self._numbers[6]

    @property
    def has_bits(self) -> bool:
        """Whether any unit has a bit mask."""
        return bool(self._numbers[7])

    @cached_property
    def constants(self) -> tuple[tuple[str, int | bool], ...]:
        """What the programs are compiled for, by the names of their arguments; hashable."""
        _, _, granule, tile, block_q, block_k, _, has_bits = self._numbers
        return (
            ("TILE", tile),
            ("GRANULE", granule),
            ("BLOCK_Q", block_q),
            ("BLOCK_K", block_k),
            ("HAS_BITS", bool(has_bits)),
            *self.groups,
        )

    @cached_property
    def groups(self) -> tuple[tuple[str, bool], ...]:
        """How `head_group` is read: one entry for all heads, and a row for each batch entry."""
        return ("SHARED", self.head_group.shape[-1] == 1), ("BY_BATCH", self.head_group.ndim == 2)

    @cached_property
    def walked(self) -> tuple[Tensor, ...]:
        """The tensors that the programs walk, in the order of their arguments."""
        return tuple(self.tensors()[1:-1])

    def tensors(self) -> list[Tensor]:
        """The fields in order, as operators take them."""
        return [getattr(self, f.name) for f in fields(self)]

    def to(self, device: torch.device | str) -> TileLists:
        """The same lists on another device; the numbers stay on the host."""
        return TileLists(self.numbers, *(t.to(device) for t in self.tensors()[1:]))
