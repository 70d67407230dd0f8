"""KeyRuns: what a kernel reads of a plan. Tensors on the inputs' device, and their host-side counts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class KeyRuns:
    """Runs of keys in CSR form; line `g * q_blocks + I` is query block `I` of head group `g`.

    Line `n` owns runs `indptr[n] : indptr[n + 1]`: first its FULL runs, then, from `partial[n]` on,
    its PARTIAL ones, each part in ascending order of keys. Run `r` covers the
    `key_ptr[r + 1] - key_ptr[r]` keys from `first[r]` on, none at or beyond kv_len. It allows query
    row `i` (counted from 0, the offset is folded in) and key `j` where

        low[r] <= j - i <= high[r]   and   mask[r] < 0 or bit `i % block_q` of masks[mask[r], j % block_k]

    Bounds are clamped so that `j - i` and they fit int32 for every length that a layout can have.

    Device tensors: indptr int64 [lines + 1]; partial int64 [lines]; first, low, high, mask int32
    [runs]; key_ptr int64 [runs + 1]; masks uint8 [masks, block_k, ceil(block_q / 8)], little-endian
    bits, key-major, so that a gathered key brings its bits along; head_group int32 [heads].
    `banded` says whether any run has a bound. Host tensors: line_keys, line_full int64 [lines], keys
    of a line in all and in its FULL runs; line_order int64, the lines that have keys, by ascending
    line_keys, then line_full; host_head_group int64 [heads].
    """

    q_len: int
    kv_len: int
    block_q: int
    block_k: int
    banded: bool
    indptr: Tensor
    partial: Tensor
    first: Tensor
    key_ptr: Tensor
    low: Tensor
    high: Tensor
    mask: Tensor
    masks: Tensor
    head_group: Tensor
    line_keys: Tensor
    line_full: Tensor
    line_order: Tensor
    host_head_group: Tensor

    @property
    def q_blocks(self) -> int:
        """Number of query blocks, the last one possibly ragged."""
        return -(-self.q_len // self.block_q)

    @property
    def groups(self) -> int:
        """Number of distinct head layouts."""
        return int(self.host_head_group.max()) + 1

    def repeated(self, times: int) -> KeyRuns:
        """The same runs with each head `times` times over."""
        heads = (x.repeat_interleave(times) for x in (self.head_group, self.host_head_group))
        return replace(self, **dict(zip(("head_group", "host_head_group"), heads, strict=True)))

    def to(self, device: torch.device | str) -> KeyRuns:
        """The same runs on another device; the host-side counts stay where they are."""
        host = {"line_keys", "line_full", "line_order", "host_head_group"}
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in host}
        return replace(self, **{name: t.to(device) for name, t in tensors.items() if isinstance(t, Tensor)})
