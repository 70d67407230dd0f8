"""Masks read back: a token mask, a block mask or a FlexAttention mask_mod becomes a Pattern.

The result is named primitives where they fit exactly, and else `blocks(...)`, which lists the mask as
it is. Every reading is lowered again and compared with the mask before it is returned.
"""

from .mask_file import mask_in
from .masks import Reading, read_block_mask, read_mask, read_mask_mod

__all__ = ["Reading", "mask_in", "read_block_mask", "read_mask", "read_mask_mod"]
