"""Transfers: which rows of a rank's shard go out, and where in a buffer those stand that come in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .needs import Needs
from .stages import Stage
from .traffic import Traffic


@dataclass(frozen=True, eq=False)
class Common:
    """A table of `rows` rows that all ranks fill together, by one all-reduce, and read.

    Own rows `give` are its rows `slots`; its rows `take` go to the rows `place` of the buffer. All are
    int64 and come up once.
    """

    rows: int
    give: Tensor
    slots: Tensor
    take: Tensor
    place: Tensor


@dataclass(frozen=True, eq=False)
class Transfer:
    """One all-to-all of a rank, and the buffer that it fills.

    Rows are those of `[kv_heads * keys]`, KV head by KV head. `send` and `place` are int64 index
    tensors, in the order of the peer rank, then KV head, then position; `sent` and `received` count
    them by peer. None: the whole shard goes out, and what arrives is the whole buffer, in order.

    `keys` are the rows that go out, once each however many ranks they go to, and `which` of them each
    row of `send` is, int64.

    `own` is where the rank's own rows stand in the buffer if they do: int64 [kv_heads * keys], or the
    first of them, if in every head they are neighbours that begin there.
    """

    send: Tensor | None
    sent: list[int]
    received: list[int]
    place: Tensor | None
    keys: Tensor | None = None
    which: Tensor | None = None
    own: Tensor | int | None = None
    full: bool = False  # every row of the buffer is filled
    common: Common | None = None


def fetch(traffic: Traffic, rank: int, buffer: Stage, device: torch.device) -> Transfer:
    """What a rank sends to others, and where in the buffer stands what it gets and, if held there, its own."""
    needs = traffic.needs
    mine = needs.key_owner == rank
    send = [
        _rows(needs, rank, needs.reads[:, peer] & mine & ~traffic.common) if peer != rank else np.arange(0)
        for peer in range(needs.ranks)
    ]
    place = [
        _places(needs, buffer, (needs.key_owner == peer) & ~traffic.common) if peer != rank else np.arange(0)
        for peer in range(needs.ranks)
    ]
    own = _places(needs, buffer, np.broadcast_to(mine, traffic.common.shape))
    common = _common(traffic, rank, buffer, device) if traffic.common.any() else None
    came = sum(map(len, place)) + (len(common.place) if common else 0)
    send_all, place_all = np.concatenate(send), np.concatenate(place)
    keys, which = np.unique(send_all, return_inverse=True)
    indices = [_index(x, device) for x in (send_all, place_all, keys, which.ravel())]
    return Transfer(
        indices[0], [len(x) for x in send], [len(x) for x in place], *indices[1:],
        own=_stretch(own, needs, rank, buffer, device),
        full=len(own) + came == len(needs.kind_of) * buffer.layout.problem.kv_len,
        common=common,
    )  # fmt: skip


def passed_on(needs: Needs, rank: int, step: int) -> Transfer:
    """A step of a ring: the shard that came last, or one's own, goes to the next rank."""
    sizes, ranks = needs.keys.lengths * len(needs.kind_of), needs.ranks
    return Transfer(
        None,
        [int(sizes[(rank - step + 1) % ranks]) if peer == (rank + 1) % ranks else 0 for peer in range(ranks)],
        [int(sizes[(rank - step) % ranks]) if peer == (rank - 1) % ranks else 0 for peer in range(ranks)],
        None,
    )


def _common(traffic: Traffic, rank: int, buffer: Stage, device: torch.device) -> Common:
    needs = traffic.needs
    # The table holds each KV head's common keys in ascending order, head by head.
    owner, taken = [], []
    for kind in needs.kind_of:
        owner.append(np.repeat(needs.key_owner, needs.widths * traffic.common[kind]))
        taken.append(np.repeat(buffer.held[kind] & (needs.key_owner != rank), needs.widths * traffic.common[kind]))
    slots, take = np.flatnonzero(np.concatenate(owner) == rank), np.flatnonzero(np.concatenate(taken))
    give = _rows(needs, rank, (needs.key_owner == rank) & traffic.common)
    place = _places(needs, buffer, (needs.key_owner != rank) & traffic.common)
    return Common(traffic.common_keys, *(_index(x, device) for x in (give, slots, take, place)))


def _rows(needs: Needs, rank: int, which: np.ndarray) -> np.ndarray:
    """The rows of a rank's shard that hold keys of its tiles, bool [kinds, kv_blocks], KV head by KV head."""
    block_k, length = needs.layout.block[1], int(needs.keys.lengths[rank])
    starts = np.zeros(needs.layout.kv_blocks, np.int64)  # of each own tile in the shard, in keys
    mine = np.flatnonzero(needs.key_owner == rank)
    starts[mine] = np.arange(len(mine)) * block_k
    of_kind = [_keys(starts[tiles], needs.widths[tiles]) for tiles in map(np.flatnonzero, which)]
    return np.concatenate([head * length + of_kind[kind] for head, kind in enumerate(needs.kind_of)])


def _places(needs: Needs, buffer: Stage, which: np.ndarray) -> np.ndarray:
    """The rows of the buffer that hold keys of some tiles, bool [kinds, kv_blocks], KV head by KV head."""
    of_kind = []
    for kind, wanted in enumerate(which):
        tiles, places = buffer.places(kind)
        kept = wanted[tiles]
        of_kind.append(_keys(places[kept] * needs.layout.block[1], needs.widths[tiles[kept]]))
    length = buffer.layout.problem.kv_len
    return np.concatenate([head * length + of_kind[kind] for head, kind in enumerate(needs.kind_of)])


def _index(x: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(x.astype(np.int64)).to(device)


def _stretch(own: np.ndarray, needs: Needs, rank: int, buffer: Stage, device: torch.device) -> Tensor | int | None:
    length = int(needs.keys.lengths[rank])
    if len(own) != length * len(needs.kind_of):
        return None  # the buffer holds what was fetched alone
    if not length:
        return 0
    heads = np.arange(len(needs.kind_of))[:, None] * buffer.layout.problem.kv_len
    if np.array_equal(own.reshape(len(heads), length), heads + own[0] + np.arange(length)):
        return int(own[0])
    return _index(own, device)


def _keys(start: np.ndarray, width: np.ndarray) -> np.ndarray:
    """The keys of tiles that start at `start` and hold `width` keys, one after another."""
    total = np.cumsum(width)
    return np.repeat(start - (total - width), width) + np.arange(total[-1] if len(total) else 0)
