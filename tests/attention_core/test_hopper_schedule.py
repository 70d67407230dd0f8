"""The work table of the Hopper programs: every row tile of every head, those with tiles first, and their number."""

from __future__ import annotations

import pytest
import torch

from attention_core.kernels.hopper.schedule import work_of
from benchmarks.hopper_cells import CELLS

NAMES = ["full", "band", "per_head_and_empty", "per_batch_from_mask", "grouped_heads", "split_rows", "bits_of_256_rows"]


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_the_table(name, by_key):
    cell = CELLS[name]
    ready = cell.plan("cpu")
    lists = ready.by_key if by_key else ready.by_query
    heads = cell.kv_heads if by_key else cell.heads
    work = work_of(lists, cell.batch, heads, cell.heads // heads)
    busy, used = work.counts.tolist()
    tiles = work.items[:, 4:].unflatten(1, (-1, 4))[:, :, [1, 3]].sum((1, 2))
    assert (tiles[:busy] > 0).all()
    assert (tiles[busy:used] == 0).all()

    places = work.items[:used, 0] * heads + work.items[:used, 1]
    assert work.each.tolist() == torch.bincount(places[:busy].long(), minlength=cell.batch * heads).tolist()

    whole = work.items[:used][work.items[:used, 3] < 0]  # others are parts of long lines
    rows = (whole[:, 0] * heads + whole[:, 1]).long() * 2**20 + whole[:, 2]
    assert len(rows.unique()) == len(rows)
    length = ready.problem.kv_len if by_key else ready.problem.q_len
    covered = {(place, row) for place, row in zip(places.tolist(), work.items[:used, 2].tolist(), strict=True)}
    assert covered >= {(p, r) for p in range(cell.batch * heads) for r in range(0, length, 128)}
