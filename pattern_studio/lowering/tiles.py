"""Column runs in tokens -> runs in tiles, without a look at the predicate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..columns import ALL, BAND, SOME, Columns, Ints, Strips, concatenate
from ..layout import UNBOUNDED
from ..order import order_of


def tile_runs(columns: Columns, strips: Strips, kv_len: int, block_k: int) -> Columns:
    """Column runs in tokens -> runs in tiles; a tile that several runs share gets its common value."""
    if block_k == 1:
        return columns
    # The last tile may be ragged: what reaches kv_len reaches the end of that tile.
    padded = np.where(columns.stop == kv_len, -(-kv_len // block_k) * block_k, columns.stop)
    inner, outer = -(-columns.start // block_k), padded // block_k
    whole = inner < outer
    # What does not fill a tile: a head before the first whole tile, a tail after the last one.
    head = columns.start % block_k != 0
    tail = (padded % block_k != 0) & ((padded // block_k > columns.start // block_k) | ~head)
    index = np.concatenate([np.flatnonzero(head), np.flatnonzero(tail)])
    begin = np.concatenate([columns.start[head], np.maximum(columns.start, outer * block_k)[tail]])
    end = np.concatenate([np.minimum(columns.stop, inner * block_k)[head], columns.stop[tail]])
    shared = _shared_tiles(columns.take(index), begin, end, strips, block_k, kv_len)
    body = columns.take(whole)
    body = replace(body, start=inner[whole], stop=outer[whole])
    return concatenate([body, shared])


def _shared_tiles(pieces: Columns, begin: Ints, end: Ints, strips: Strips, block_k: int, kv_len: int) -> Columns:
    """The tiles that pieces `begin:end` of column runs lie in, each with the value that all its columns share."""
    tile = begin // block_k
    order = order_of(pieces.strip * (kv_len + 1) + begin)
    pieces, begin, end, tile = pieces.take(order), begin[order], end[order], tile[order]
    if not len(tile):
        return Columns(pieces.strip, tile, tile, pieces.state, pieces.lo, pieces.hi)
    heads = np.flatnonzero(np.r_[True, (pieces.strip[1:] != pieces.strip[:-1]) | (tile[1:] != tile[:-1])])
    count = np.diff(np.r_[heads, len(tile)])
    strip, at = pieces.strip[heads], tile[heads]
    left, right = at * block_k, np.minimum((at + 1) * block_k, kv_len)
    filled = np.add.reduceat(end - begin, heads)
    all_all = np.minimum.reduceat(pieces.state, heads) == ALL
    no_some = ~np.logical_or.reduceat(pieces.state == SOME, heads)
    # The one band that could describe the tile, and whether every piece agrees with it on its columns.
    lo, hi = np.maximum.reduceat(pieces.lo, heads), np.minimum.reduceat(pieces.hi, heads)
    first, last = strips.first[pieces.strip], strips.last[pieces.strip]
    lo_of, hi_of = np.repeat(lo, count), np.repeat(hi, count)
    agrees = ((pieces.lo == lo_of) | (begin - last >= lo_of)) & ((pieces.hi == hi_of) | (end - 1 - first <= hi_of))
    agrees = np.logical_and.reduceat(agrees, heads)
    # Columns that no piece names must be outside the band's reach.
    reach = np.minimum(strips.last[strip] + hi + 1, right) - np.maximum(strips.first[strip] + lo, left)
    one_band = no_some & agrees & (reach == filled) & (lo <= hi)
    state = np.where(all_all & (filled == right - left), ALL, np.where(one_band, BAND, SOME)).astype(np.uint8)
    is_band = state == BAND
    return Columns(strip, at, at + 1, state, np.where(is_band, lo, -UNBOUNDED), np.where(is_band, hi, UNBOUNDED))
