"""What a rank really hands to the network: seen at the collectives, not told by the plan."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Sent(TorchDispatchMode):
    """Counts the bytes that a rank hands to all-to-alls for other ranks, and a ring's share of all-reduces."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__()
        self.rank, self.ranks, self.bytes = rank, ranks, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops._c10d_functional.all_to_all_single.default:
            rows, _, sent, _ = args
            assert len(rows) == sum(sent)
            self.bytes += (sum(sent) - sent[self.rank]) * rows[:1].numel() * rows.element_size()
        if func is torch.ops._c10d_functional.all_reduce.default:
            rows = args[0]
            steps = -(-2 * (self.ranks - 1) * len(rows) // self.ranks)
            self.bytes += steps * rows[:1].numel() * rows.element_size()
        return func(*args, **(kwargs or {}))
