"""The Hopper kernels: their rule, their work table walked in plain torch, and on a card every cell against float64."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

import pattern_studio as ps
from attention_core import Plan, block_sparse_attention, plan
from attention_core.kernels import reference
from attention_core.kernels.hopper import serves
from attention_core.kernels.hopper.launch_backward import pays_to_add
from attention_core.kernels.hopper.schedule import work_of
from benchmarks import hopper_variants
from benchmarks.cases import global_local, local
from benchmarks.cases import random as random_tiles
from benchmarks.hopper_cells import CELLS, claiming, errors, limit
from tests.attention_core.inputs import DEVICE, work_table

CUDA = torch.cuda.is_available()
HOPPER = CUDA and torch.cuda.get_device_capability() == (9, 0)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("backend", ["triton", "hopper", "hopper, adding"])
def test_cell_against_float64(backend, name, dtype, dim):
    if not (CUDA if backend == "triton" else HOPPER):
        pytest.skip(f"backend {backend!r} needs {'CUDA' if backend == 'triton' else 'compute capability 9.0'}")
    if dtype not in CELLS[name].halves:
        pytest.skip("the values of this cell are infinite in this dtype")
    claimed = "adding" in backend  # as its backward always does
    with claiming(claimed):
        found = errors(name, backend.removesuffix(", adding"), dtype, dim, deterministic=backend == "hopper")
    assert all(error <= limit(part, dtype) for part, error in found.items()), found


@pytest.mark.parametrize(
    ("shape", "value_dim", "block", "dtype", "reason"),
    [
        (128, 128, (128, 128), torch.bfloat16, None),
        (64, 64, (256, 8), torch.float16, None),
        (128, 128, (128, 128), torch.float32, "q is float32, not float16 or bfloat16"),
        (96, 96, (128, 128), torch.float16, "head_dim 96 and value_dim 96 are not both 64 or both 128"),
        (64, 128, (128, 128), torch.float16, "head_dim 64 and value_dim 128 are not both 64 or both 128"),
        (64, 64, (64, 64), torch.float16, "block_q 64 is not 128 or 256"),
        (64, 64, (128, 1), torch.float16, "block_k 1 is not a multiple of 8"),
        (64, 64, (128, 12), torch.float16, "block_k 12 is not a multiple of 8"),
    ],
)
def test_what_no_program_is_built_for(shape, value_dim, block, dtype, reason):
    assert serves.unserved(dtype, shape, value_dim, block) == reason


@pytest.mark.parametrize(
    ("density", "dim", "pays"), [(0.10, 128, False), (0.15, 128, True), (0.02, 64, False), (0.05, 64, True)]
)
@pytest.mark.parametrize("heads", [1, 3])
def test_gradients_of_queries_are_added_up_where_each_reads_many_keys(density, dim, pays, heads):
    ready = plan(ps.lower(random_tiles(density, 8192, heads, 128, 128), q_len=8192, heads=heads, block=128))
    assert pays_to_add(ready.by_query, dim) == pays


def test_gradients_of_queries_are_added_up_where_lines_are_split():
    assert pays_to_add(plan(ps.lower(global_local(0.05, 8192, 128), q_len=8192, block=128)).by_query, 128)
    assert not pays_to_add(plan(ps.lower(local(0.05, 8192, 128), q_len=8192, block=128)).by_query, 128)


@pytest.mark.skipif(HOPPER, reason="this machine has what is asked for")
def test_another_machine_is_one_clear_error():
    ready = plan(ps.lower(ps.causal, q_len=128, block=128))
    x = torch.zeros(1, 1, 128, 64, dtype=torch.float16)
    with pytest.raises(
        ps.StudioError, match="'hopper' can't serve this: q is on cpu, not on a CUDA device of compute ca"
    ):
        block_sparse_attention(x, x, x, ready, backend="hopper")


@pytest.mark.parametrize("version", ["3.5", "4.0", None])
def test_another_triton_is_refused(version, monkeypatch):
    monkeypatch.setattr(serves, "_triton", lambda: version)
    told = f"triton {version} is installed, not 3.6 or 3.9" if version else "the package triton is not installed"
    assert serves.obstacle(torch.zeros(1, 1, 1, 64).half(), torch.zeros(1, 1, 1, 64), (128, 128)) == told


def walked(ready: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse as the Hopper programs find their work: items, tiles, units, scratch rows; in float64."""
    lists, (batch, heads, q_len, dim), kv_len = ready.by_query, q.shape, k.shape[2]
    work, scale = work_table(lists, batch, heads), dim**-0.5
    busy, used, marked = work.counts.tolist()
    assert not marked
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan, dtype=q.dtype)
    scratch: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    per_tile = lists.tile // lists.granule
    ratio = heads // k.shape[1]
    order = []
    for n, (b, h, first, place, masked_begin, masked, full_begin, full) in enumerate(work.items[:used].tolist()):
        row = torch.arange(first, min(first + 128, q_len))
        order.append((b * heads + h, 1.25 * masked + full))
        assert (masked + full > 0) == (n < busy)
        keys, seen = [], []
        for units, begin, count in ((lists.masked_units, masked_begin, masked), (lists.full_units, full_begin, full)):
            for u in range(begin * per_tile, (begin + count) * per_tile):
                key = units[u] + torch.arange(lists.granule)
                allowed = (key < kv_len).expand(len(row), -1)
                if units is lists.masked_units:
                    distance = key - row[:, None]
                    allowed = allowed & (distance >= lists.low[u]) & (distance <= lists.high[u])
                    if lists.bits[u] >= 0:
                        bit = (row % lists.block_q)[:, None]
                        byte = lists.masks[lists.bits[u], key % lists.block_k][:, None].transpose(0, 1)
                        byte = byte.expand(len(row), -1, -1).gather(2, (bit // 8).expand(-1, len(key))[..., None])
                        allowed = allowed & (byte[..., 0] >> bit % 8 & 1).bool()
                keys.append(key.clamp(max=kv_len - 1))
                seen.append(allowed)
        if not keys:
            o, s = torch.zeros(len(row), dim, dtype=q.dtype), torch.full((len(row),), -torch.inf, dtype=q.dtype)
        else:
            key = torch.cat(keys)
            score = scale * q[b, h, row] @ k[b, h // ratio, key].T
            score = score.masked_fill(~torch.cat(seen, 1), -torch.inf)
            s = score.logsumexp(-1)
            o = (score - s[:, None].nan_to_num(neginf=0)).exp() @ v[b, h // ratio, key]
        if place < 0:
            assert out[b, h, row].isnan().all()  # written once
            out[b, h, row], lse[b, h, row] = o, s
        else:
            assert place not in scratch
            scratch[place] = o, s
    # Head by head, most work first; what takes longer than a head's turn begins so much earlier; without tiles last.
    turn = sum(cost for _, cost in order) / (lists.line_size // 128) / (batch * heads * 132)
    assert order == sorted(order, key=lambda x: (x[1] == 0, x[0] * turn - x[1]))
    for b in range(batch):
        for h in range(heads):
            group = int(lists.head_group.expand(batch, heads)[b, h])
            for line, slot, parts in lists.splits[group].tolist():
                for down in range(0, lists.line_size if line >= 0 else 0, 128):
                    begin = line * lists.line_size + down
                    row = torch.arange(begin, min(begin + 128, q_len))
                    at = [((b * heads + h) * lists.slots + slot + n) * lists.line_size + down for n in range(parts)]
                    outs, sums = (torch.stack(x) for x in zip(*(scratch.pop(a) for a in at), strict=True))
                    lse[b, h, row] = sums.logsumexp(0)
                    share = (sums - lse[b, h, row].nan_to_num(neginf=0)).exp()
                    out[b, h, row] = (share[..., None] * outs).sum(0)
    assert not scratch
    return out, lse


@pytest.mark.parametrize(
    "name", [n for n, c in CELLS.items() if c.ordinary and not n.startswith(("rising", "negative"))]
)
def test_work_table_walked_in_plain_torch(name):
    """Every row, tile and unit is where the programs will look for it."""
    cell = CELLS[name]
    q, k, v = (x.double() for x in cell.inputs(torch.float32, 64, "cpu"))
    ready = cell.plan("cpu")
    backend = "blocked" if q.shape[2] > 1000 else "reference"
    wanted = block_sparse_attention(q, k, v, ready, return_lse=True, backend=backend)
    for found, exact in zip(walked(ready, q, k, v), wanted, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-9)


def test_a_head_leaves_no_long_line_for_the_end():
    # In every head one line of 32 tiles, split into parts of 8, and 31 of four: 1.18 tiles a program and head.
    heads, rows = 8, np.zeros((32, 32), bool)
    for row, tiles in enumerate([4] * 31 + [32]):
        rows[row, :tiles] = True
    ready = plan(ps.lower(ps.blocks.from_mask(rows, 128), q_len=4096, block=128))
    work = work_table(ready.by_query, 1, heads)
    found = [(head, tiles) for _, head, *_, tiles in work.items[: work.counts[0]].tolist()]
    # A part of 8 takes 3.4 turns more than a line of four, so it is begun three heads before its own.
    wanted = [(head, 8) for head in range(4) for _ in range(4)]
    for head in range(heads):
        wanted += [(head, 4)] * 31 + [(head + 4, 8)] * (4 if head + 4 < heads else 0)
    assert found == wanted


def test_the_table_is_made_once_for_lists_and_sizes():
    lists = plan(ps.lower(ps.causal, q_len=300, block=128), device=DEVICE).by_query
    first = work_of(lists, 2, 3)
    assert work_of(lists, 2, 3) is first
    assert len(work_of(lists, 1, 3).items) * 2 == len(first.items) == 18


def test_unused_entries_of_a_device_built_table_come_last():
    ready = CELLS["per_batch_from_mask"].plan("cpu")
    work = work_table(ready.by_query, 2, 3)
    busy, used, marked = work.counts.tolist()
    assert not marked
    assert busy < used == 2 * 3 * 6 <= len(work.items)


@pytest.mark.parametrize("name", ["grouped_heads", "per_batch_from_mask", "bits"])
def test_work_table_by_keys_holds_every_pair_once(name):
    """Key tiles, and of each query head that reads them the query tiles, as the dK, dV program walks them."""
    cell = CELLS[name]
    ready = cell.plan("cpu")
    lists, problem = ready.by_key, ready.problem
    ratio = cell.heads // cell.kv_heads
    work = work_table(lists, cell.batch, cell.kv_heads, ratio)
    seen = torch.zeros(cell.batch, cell.heads, problem.q_len, problem.kv_len, dtype=torch.int8)
    per_tile = lists.tile // lists.granule
    for b, h, first, place, *tiles in work.items[: work.counts[0]].tolist():
        assert place == -1  # no line of these is long enough to be split
        key = torch.arange(first, min(first + 128, problem.kv_len))
        for member, (masked_begin, masked, full_begin, full) in enumerate(zip(*[iter(tiles)] * 4, strict=True)):
            for units, begin, count in (
                (lists.masked_units, masked_begin, masked),
                (lists.full_units, full_begin, full),
            ):
                for u in range(begin * per_tile, (begin + count) * per_tile):
                    row = units[u] + torch.arange(lists.granule)
                    row = row[row < problem.q_len]
                    allowed = torch.ones(len(row), len(key), dtype=torch.bool)
                    if units is lists.masked_units:
                        distance = key - row[:, None]
                        allowed = (distance >= lists.low[u]) & (distance <= lists.high[u])
                        if lists.bits[u] >= 0:
                            bit = row[:, None] % lists.block_q
                            byte = lists.masks[lists.bits[u]][(key % lists.block_k)[None, :], bit // 8]
                            allowed = allowed & (byte >> bit % 8 & 1).bool()
                    seen[b, h * ratio + member, row[:, None], key[None, :]] += allowed.to(torch.int8)
    wanted = reference.dense_mask(ready.runs)
    wanted = wanted.unflatten(0, (-1, cell.heads)) if len(wanted) > cell.heads else wanted
    assert torch.equal(seen, wanted.expand_as(seen).to(torch.int8))


@pytest.mark.parametrize(
    ("block", "by_key", "reason"),
    [
        ((128, 128), True, None),
        ((256, 128), True, None),
        ((128, 64), True, "block_k 64 is not 128 or 256"),
        ((128, 8), False, "dK and dV are added to gathered keys, without lists by keys"),
    ],
)
def test_which_backward_is_the_portable_kernels(block, by_key, reason):
    assert serves.unserved_backward(block, by_key) == reason


def test_a_job_that_does_not_end_costs_only_its_own_time():
    found = hopper_variants._child({"kind": "cell", "cell": "full", "dim": 64}, dict(os.environ), 0.2)
    assert found == {"ok": False, "error": "no end after 0 s: a hang, or a slow compiler"}


@pytest.mark.parametrize("name", ["one_tile", "bands_and_bits", "no_keys", "per_batch_from_mask", "poisoned"])
def test_the_cells_hold_for_plain_torch(name):
    """What a card is asked is right: another kernel, on this machine, passes."""
    found = errors(name, "blocked", torch.float16, 64, "cpu")
    assert all(error <= limit(part, torch.float16) for part, error in found.items()), found
    assert set(found) == {"out", "lse"} | ({"dq", "dk", "dv", "out_to_dense"} if CELLS[name].ordinary else set())


@pytest.mark.parametrize(
    ("name", "length", "block_k"), [x for x in hopper_variants.TIMED if x[1] == 8192 or "window" in x[0]]
)
def test_timed_cells_can_be_made(name, length, block_k):
    case = hopper_variants._case(name, length, 64, block_k)
    assert (case.name, case.length, case.kv_heads, case.block) == (name, length, 16, (128, block_k))
    assert case.layout().tile_pairs > 0
