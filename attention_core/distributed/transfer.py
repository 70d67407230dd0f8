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
class Returned:
    """Which gradients of a table that comes back belong to which rows of a rank's shard.

    `keys` are the rows that went out, once each, those that most ranks read first. In turn t each of the
    first `turns[t]` of them gets one row of the table; `rows` are these, turn by turn, and
    rows[ends[t]:ends[t + 1]] those of turn t, with an empty turn at the end. A key's turns follow the
    order of the ranks, so its sum has one order. Tensors are int64.
    """

    keys: Tensor
    rows: Tensor
    turns: list[int]
    ends: Tensor


@dataclass(frozen=True, eq=False)
class Common:
    """A table of `rows` rows that all ranks fill together, by one all-reduce, and read.

    Own rows `give` are its rows `slots`, and `back` says so of their gradients; its rows `take` go to the
    rows `place` of the buffer. All are int64 and come up once.
    """

    rows: int
    give: Tensor
    slots: Tensor
    take: Tensor
    place: Tensor
    back: Returned


@dataclass(frozen=True, eq=False)
class Transfer:
    """One all-to-all of a rank, and the buffer that it fills.

    Rows are those of `[kv_heads * keys]`, KV head by KV head. `send` and `place` are int64 index
    tensors, in the order of the peer rank, then KV head, then position; `sent` and `received` count
    them by peer, and `back` is for the gradients of what was sent.

    `own` is where the rank's own rows stand in the buffer if they do: int64 [kv_heads * keys], or the
    first of them, if in every head they are neighbours that begin there.
    """

    send: Tensor
    sent: list[int]
    received: list[int]
    place: Tensor
    back: Returned
    own: Tensor | int | None
    full: bool  # every row of the buffer is filled
    common: Common | None


@dataclass(frozen=True)
class Passed:
    """One step of a ring: so many rows of a shard go to each rank and come from each, and fill the whole buffer."""

    sent: list[int]
    received: list[int]


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
    return Transfer(
        send=_index(send_all, device),
        sent=[len(x) for x in send],
        received=[len(x) for x in place],
        place=_index(place_all, device),
        back=returned(send_all, np.arange(len(send_all)), device),
        own=_stretch(own, needs, rank, buffer, device),
        full=len(own) + came == len(needs.kind_of) * buffer.layout.problem.kv_len,
        common=common,
    )


def returned(sent: np.ndarray, rows: np.ndarray, device: torch.device | str | None = None) -> Returned:
    """Row `sent[n]` of the shard gets row `rows[n]` of the table back, in the order of n.

    >>> back = returned(np.array([4, 7, 2, 7]), np.arange(4))
    >>> back.keys.tolist(), back.turns, back.rows.tolist(), back.ends.tolist()
    ([7, 2, 4], [3, 1], [1, 2, 0, 3], [0, 3, 4, 4])
    """
    keys, which, times = np.unique(sent, return_inverse=True, return_counts=True)
    order = np.argsort(which.ravel(), kind="stable")
    turn = np.arange(len(sent)) - np.repeat(np.cumsum(times) - times, times)  # of each row, in that order
    key_order = np.argsort(-times, kind="stable")
    place = np.empty(len(keys), np.int64)
    place[key_order] = np.arange(len(keys))
    by_turn = np.lexsort((np.repeat(place, times), turn))
    turns = np.bincount(turn)
    ends = np.concatenate([[0], np.cumsum(turns), [len(sent)]])
    keys_first, rows_first, ends_first = (_index(x, device) for x in (keys[key_order], rows[order][by_turn], ends))
    return Returned(keys_first, rows_first, turns.tolist(), ends_first)


def passed_on(needs: Needs, rank: int, step: int) -> Passed:
    """A step of a ring: the shard that came last, or one's own, goes to the next rank."""
    sizes, ranks = needs.keys.lengths * len(needs.kind_of), needs.ranks
    return Passed(
        [int(sizes[(rank - step + 1) % ranks]) if peer == (rank + 1) % ranks else 0 for peer in range(ranks)],
        [int(sizes[(rank - step) % ranks]) if peer == (rank - 1) % ranks else 0 for peer in range(ranks)],
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
    indices = (_index(x, device) for x in (give, slots, take, place))
    return Common(traffic.common_keys, *indices, back=returned(give, slots, device))


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


def _index(x: np.ndarray, device: torch.device | str | None) -> Tensor:
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
