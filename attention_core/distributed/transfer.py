"""Transfers: which rows of a rank's shard go out, and where in a buffer those stand that come in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .needs import Needs
from .stages import Stage


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


def fetch(needs: Needs, rank: int, buffer: Stage, device: torch.device) -> Transfer:
    """What a rank sends to others, and where in the buffer stands what it gets and, if held there, its own."""
    block_k, ranks, length = needs.layout.block[1], needs.ranks, int(needs.keys.lengths[rank])
    starts = np.zeros(needs.layout.kv_blocks, np.int64)  # of each own tile in the shard, in keys
    mine = np.flatnonzero(needs.key_owner == rank)
    starts[mine] = np.arange(len(mine)) * block_k
    send, sent = [], []
    for peer in range(ranks):
        tiles = [
            np.flatnonzero(needs.read(peer, kind) & (needs.key_owner == rank)) if peer != rank else mine[:0]
            for kind in range(len(needs.kinds))
        ]
        rows = [
            head * length + _keys(starts[tiles[kind]], needs.widths[tiles[kind]])
            for head, kind in enumerate(needs.kind_of)
        ]
        send += rows
        sent.append(sum(map(len, rows)))
    stands = [buffer.places(kind) for kind in range(len(needs.kinds))]
    place, received = [], []
    for peer in range(ranks):
        rows = _stand(needs, buffer, stands, peer)
        place.append(rows)
        received.append(len(rows) if peer != rank else 0)
    own = place.pop(rank)
    filled = len(own) + sum(received) == len(needs.kind_of) * buffer.layout.problem.kv_len
    none = np.arange(0)
    send_all, place_all = np.concatenate([none, *send]), np.concatenate([none, *place])
    keys, which = np.unique(send_all, return_inverse=True)
    indices = (torch.from_numpy(x.astype(np.int64)).to(device) for x in (send_all, place_all, keys, which.ravel()))
    send_index, place_index, key_index, which_index = indices
    stretch = _stretch(own, needs, rank, buffer, device)
    return Transfer(send_index, sent, received, place_index, key_index, which_index, stretch, filled)


def passed_on(needs: Needs, rank: int, step: int) -> Transfer:
    """A step of a ring: the shard that came last, or one's own, goes to the next rank."""
    sizes, ranks = needs.keys.lengths * len(needs.kind_of), needs.ranks
    return Transfer(
        None,
        [int(sizes[(rank - step + 1) % ranks]) if peer == (rank + 1) % ranks else 0 for peer in range(ranks)],
        [int(sizes[(rank - step) % ranks]) if peer == (rank - 1) % ranks else 0 for peer in range(ranks)],
        None,
    )


def _stand(needs: Needs, buffer: Stage, stands: list, owner: int) -> np.ndarray:
    """The rows of the buffer that hold keys of one rank, KV head by KV head."""
    rows = []
    for head, kind in enumerate(needs.kind_of):
        tiles, places = stands[kind]
        theirs = needs.key_owner[tiles] == owner
        keys = _keys(places[theirs] * needs.layout.block[1], needs.widths[tiles[theirs]])
        rows.append(head * buffer.layout.problem.kv_len + keys)
    return np.concatenate(rows)


def _stretch(own: np.ndarray, needs: Needs, rank: int, buffer: Stage, device: torch.device) -> Tensor | int | None:
    length = int(needs.keys.lengths[rank])
    if len(own) != length * len(needs.kind_of):
        return None  # the buffer holds what was fetched alone
    if not length:
        return 0
    heads = np.arange(len(needs.kind_of))[:, None] * buffer.layout.problem.kv_len
    if np.array_equal(own.reshape(len(heads), length), heads + own[0] + np.arange(length)):
        return int(own[0])
    return torch.from_numpy(own).to(device)


def _keys(start: np.ndarray, width: np.ndarray) -> np.ndarray:
    """The keys of tiles that start at `start` and hold `width` keys, one after another."""
    total = np.cumsum(width)
    return np.repeat(start - (total - width), width) + np.arange(total[-1] if len(total) else 0)
