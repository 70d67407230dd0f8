"""DistributedPlan: what one rank runs, what it sends and receives, and what that costs, known before it runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout

from ..plan import Plan
from ..plan import plan as local_plan
from .needs import Needs, needs
from .stages import stage
from .traffic import Traffic, routed, worth_overlapping
from .transfer import Passed, Transfer, fetch, passed_on

MODES = ("fetch", "ring")
LISTED = 16  # links
DENSE = 0.5  # of a ring's traffic: from there on the ring's plain neighbour exchange is taken


@dataclass(frozen=True, eq=False)
class DistributedPlan:
    """A layout over the ranks of one group, as one rank runs it. Made by `distributed_plan()`.

    `steps` are (plan over the keys in the buffer, the transfer that filled it). Without a transfer a step
    runs on the rank's own keys; where the first one has one, its buffer holds them too, and it is the
    only step.
    """

    needs: Needs
    rank: int
    lengths: tuple[int, int]  # query rows and keys that this rank holds
    traffic: Traffic
    steps: tuple[tuple[Plan, Transfer | Passed | None], ...]
    fingerprint: str
    agreed: set[str] = field(repr=False)  # calls that all ranks were found to make alike

    @property
    def mode(self) -> str:
        """How keys travel: "fetch" or "ring"."""
        return self.traffic.mode

    @property
    def kv_heads(self) -> int:
        """KV heads of the whole model's k and v: heads are not sharded."""
        return len(self.needs.kind_of)

    @property
    def device(self) -> torch.device:
        """Where this rank's q, k and v must be."""
        return self.steps[0][0].device

    @property
    def query_positions(self) -> Tensor:
        """The global query row of each local one, int64 [local q_len]: `x[..., plan.query_positions, :]`."""
        return torch.from_numpy(self.needs.queries.positions(self.rank))

    @property
    def key_positions(self) -> Tensor:
        """The global key of each local one, int64 [local kv_len]."""
        return torch.from_numpy(self.needs.keys.positions(self.rank))

    def bytes_between(self, head_dim: int, value_dim: int, itemsize: int, batch: int = 1) -> np.ndarray:
        """Bytes of K and V that each rank sends to each other in a forward pass, int64 [from, to].

        Of an all-reduce, which sums in float32 at least, they are those of a ring. A backward pass
        returns as many, of the gradients.
        """
        traffic, dims = self.traffic, (head_dim + value_dim) * batch
        return dims * (traffic.keys_between * itemsize + traffic.reduced_between * max(itemsize, 4))

    def links(self, head_dim: int, value_dim: int, itemsize: int, batch: int = 1) -> str:
        """The plan and the bytes of `bytes_between`, a line a link, the busiest LISTED of them.

        >>> import pattern_studio as ps
        >>> layout = ps.lower(ps.parse("causal & window(255, 0)"), q_len=6144, block=128)
        >>> print(distributed_plan(layout, ranks=3, rank=0).links(head_dim=64, value_dim=64, itemsize=2))
        3 ranks, contiguous, fetch in one pass: keys sent 512 over all KV heads, 4.17% of a ring's; \
pairs a rank 737,280 to 786,432, so at most 2.94 times as fast as one
        rank 0 to 1: 65,536 bytes
        rank 1 to 2: 65,536 bytes
        """
        between = self.bytes_between(head_dim, value_dim, itemsize, batch)
        used = np.argwhere(between)
        order = np.argsort(-between[between > 0], kind="stable")
        lines = [f"rank {a} to {b}: {between[a, b]:,} bytes" for a, b in used[order[:LISTED]].tolist()]
        if len(used) > LISTED:
            lines.append(f"and {len(used) - LISTED:,} links of less")
        return "\n".join([str(self), *lines])

    def __str__(self) -> str:
        n, traffic, pairs = self.needs, self.traffic, self.needs.pairs
        sent = int(traffic.keys_between.sum() + traffic.reduced_between.sum())
        if self.mode == "ring":
            share = f"a fetch would send {int(n.keys_between.sum()):,}"
        else:
            share = f"{sent / n.ring_keys:.2%} of a ring's" if n.ring_keys else "none"
        if traffic.common_keys:
            share += (
                f", {traffic.common_keys:,} common ones by all-reduce, so that the busiest rank moves "
                f"{traffic.busiest:,} and not {routed(n, 'fetch', False).busiest:,}"
            )
        passes = "in parts" if len(self.steps) > 1 else "in one pass"
        return (
            f"{n.ranks} ranks, {n.way}, {self.mode} {passes}: keys sent {sent:,} over all KV heads, {share}; "
            f"pairs a rank {int(pairs.min()):,} to {int(pairs.max()):,}, "
            f"so at most {n.ranks / n.imbalance:.3g} times as fast as one"
        )


def distributed_plan(
    layout: BlockLayout,
    ranks: int,
    rank: int,
    *,
    kv_heads: int | None = None,
    way: str = "auto",
    mode: str = "auto",
    overlap: bool | None = None,
    common: bool | None = None,
    device: torch.device | str | None = None,
) -> DistributedPlan:
    """Deal a layout out to `ranks` and make what `rank` runs on `device`. Every rank makes its own, from one layout.

    `kv_heads` is the number of KV heads of k and v (the layout's heads if None); `way` how tokens are
    dealt out (`contiguous`, `zigzag`, `balanced`, or "auto", see `needs`); `mode` how keys travel:
    "fetch" sends each rank the keys that its rows read and no other, "ring" passes whole shards from
    neighbour to neighbour, and "auto" fetches where that sends less than half of what the ring would.
    With `overlap` a rank runs on its own keys while others travel and merges the parts by their LSE, as
    a ring always does; without, it runs once, on its own and the fetched keys, and they travel while its
    own are copied beside them. None overlaps where some rank fetches more bytes than its own q holds.
    With `common` keys that at least half of the other ranks read, such as sinks, travel by one
    all-reduce, so that their owner needn't send them to each; None: where that at least halves what the
    busiest rank sends or receives. What is chosen is printed with the plan.
    Needs no process group, so traffic and balance can be counted for any number of ranks.

    >>> import pattern_studio as ps
    >>> layout = ps.lower(ps.parse("causal & (window(4095, 0) | sink(64))"), q_len=131072, block=128)
    >>> print(distributed_plan(layout, ranks=4, rank=0))
    4 ranks, contiguous, fetch in one pass: keys sent 12,672 over all KV heads, 3.22% of a ring's; \
pairs a rank 133,414,912 to 142,606,336, so at most 3.94 times as fast as one
    """
    if not isinstance(layout, BlockLayout):
        raise StudioError(f"distributed_plan() takes a BlockLayout, got {type(layout).__name__}; lower the pattern")
    layout.validate()
    if not 0 <= rank < ranks:
        raise StudioError(f"rank must lie between 0 and {ranks - 1}, got {rank}")
    found = needs(layout, ranks, layout.problem.heads if kv_heads is None else kv_heads, way)
    if mode == "auto":
        mode = "ring" if ranks > 1 and found.keys_between.sum() >= DENSE * found.ring_keys else "fetch"
    if mode not in MODES:
        raise StudioError(f"mode must be one of auto, {', '.join(MODES)}, got {mode!r}")
    if mode == "ring" and (overlap is False or common):
        raise StudioError(
            f"a ring overlaps and has no common keys, got overlap={overlap}, common={common}; "
            "leave them out or pass mode='fetch'"
        )
    traffic = routed(found, mode, common)
    overlap = mode == "ring" or (worth_overlapping(found) if overlap is None else overlap)
    owned = np.tile(found.key_owner, (len(found.kinds), 1))
    sends = mode == "fetch" and bool(found.keys_between.any())
    read = found.reads[:, rank]
    steps: list[tuple[Plan, Transfer | Passed | None]] = []
    if sends and not overlap:
        steps.append(_filled(traffic, rank, read | (owned == rank), device))
    else:
        steps.append((local_plan(stage(found, rank, owned == rank).layout, device), None))
        if sends:
            steps.append(_filled(traffic, rank, read & (owned != rank), device))
    if mode == "ring":
        for step in range(1, ranks):
            there = stage(found, rank, owned == (rank - step) % ranks)
            steps.append((local_plan(there.layout, device), passed_on(found, rank, step)))
    lengths = int(found.queries.lengths[rank]), int(found.keys.lengths[rank])
    fingerprint = _fingerprint(found, f"{mode} {overlap} {traffic.common_keys}")
    return DistributedPlan(found, rank, lengths, traffic, tuple(steps), fingerprint, set())


def _filled(traffic: Traffic, rank: int, held: np.ndarray, device: torch.device | str | None) -> tuple[Plan, Transfer]:
    """The plan over the keys of a buffer, and the transfer that fills it."""
    buffer = stage(traffic.needs, rank, held)
    made = local_plan(buffer.layout, device)
    return made, fetch(traffic, rank, buffer, made.device)


def _fingerprint(needs: Needs, mode: str) -> str:
    """Of everything that all ranks of a plan share."""
    layout, made = needs.layout, hashlib.sha256()
    made.update(repr((layout.problem, layout.block, needs.ranks, len(needs.kind_of), needs.way, mode)).encode())
    rows = layout.rows
    for array in (
        layout.head_group,
        rows.indptr,
        rows.start,
        rows.length,
        rows.kind,
        rows.ref,
        layout.bands,
        layout.bits,
    ):
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()
