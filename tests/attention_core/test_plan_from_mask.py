"""Plans out of a device's block mask: exact lists in both directions, no host sync, three backends that agree."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import pattern_studio as ps
from attention_core import block_sparse_attention, plan_from_mask
from attention_core.block_mask import BlockMask, lists_in_torch, spare_parts, work_table
from attention_core.kernels import reference
from attention_core.kernels.triton.lists import TileLists
from attention_core.kernels.triton.lists_from_mask import lists_from_mask
from attention_core.tiles import CTAS, EDGE, SHORTEST_PART

from . import naive
from .inputs import assert_same, gradients, qkv, run

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def random_mask(*shape: int, density: float = 0.5, seed: int = 0) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density).to(DEVICE)


def tokens(mask: Tensor, block: tuple[int, int], q_len: int, kv_len: int, offset: int, causal: bool) -> Tensor:
    """The token mask that a block mask stands for, bool [batch or 1, heads or 1, q_len, kv_len]."""
    whole = mask.repeat_interleave(block[0], 2).repeat_interleave(block[1], 3)[:, :, :q_len, :kv_len]
    i = torch.arange(q_len, device=mask.device)[:, None] + offset
    return whole & (torch.arange(kv_len, device=mask.device) <= i) if causal else whole


def expanded(lists: TileLists, own_len: int, length: int, keys_own: bool) -> Tensor:
    """Token mask [groups, q_len, kv_len] that lists allow, walked as the kernels walk them, counting each pair once."""
    groups, per_tile, granule = lists.head_group.numel(), lists.tile // lists.granule, lists.granule
    seen = torch.zeros(groups, own_len, length, dtype=torch.int64)
    for n in range(groups * lists.lines):
        group, line = divmod(n, lists.lines)
        own = torch.arange(line * lists.line_size, min((line + 1) * lists.line_size, own_len))[:, None]
        for unit in lists.full_units[lists.full_ptr[n] * per_tile : lists.full_ptr[n + 1] * per_tile].tolist():
            assert unit + granule <= length
            seen[group, own, torch.arange(unit, unit + granule)] += 1
        for at in range(int(lists.masked_ptr[n]) * per_tile, int(lists.masked_ptr[n + 1]) * per_tile):
            unit = int(lists.masked_units[at])
            other = torch.arange(unit, min(unit + granule, length))
            distance = own - other if keys_own else other - own
            seen[group, own, other] += ((distance >= lists.low[at].cpu()) & (distance <= lists.high[at].cpu())).long()
    assert not (seen > 1).any()
    return (seen > 0).mT if keys_own else seen > 0


def assert_work_is_whole(lists: TileLists) -> None:
    """Every line is worked in all its parts once, and the parts of split lines have slots that a merge names."""
    for jobs, splits in zip(lists.jobs.tolist(), lists.splits.tolist(), strict=True):
        found = sorted((line, part, parts) for line, part, parts, _ in jobs if line >= 0)
        of = dict((line, parts) for line, _, parts in found)
        assert found == [(line, part, of[line]) for line in range(lists.lines) for part in range(of[line])]
        named = {(line, first + n): n for line, first, parts in splits if line >= 0 for n in range(parts)}
        taken = {(line, slot): part for line, part, parts, slot in jobs if parts > 1}
        assert named == taken
        assert all(slot < 0 for line, _, parts, slot in jobs if line >= 0 and parts == 1)
        assert len({slot for _, slot in taken}) == len(taken)
        assert max((slot for _, slot in taken), default=-1) < max(lists.slots, 1)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_lists_are_exact_in_both_directions(data):
    block = data.draw(st.tuples(st.sampled_from([16, 24, 32, 64]), st.sampled_from([1, 8, 24, 32, 64, 128])))
    q_len, kv_len = data.draw(st.integers(0, 150)), data.draw(st.integers(0, 150))
    batch, heads, causal = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2)), data.draw(st.booleans())
    offset = data.draw(st.sampled_from([None, 0, -7, 30, -(2**31 - 1), 2**31 - 1]))
    shape = batch, heads, -(-q_len // block[0]), -(-kv_len // block[1])
    mask = random_mask(
        *shape, density=data.draw(st.sampled_from([0.0, 0.1, 0.6, 1.0])), seed=data.draw(st.integers(0, 99))
    )
    made = plan_from_mask(mask, q_len=q_len, kv_len=kv_len, block=block, q_offset=offset, causal=causal)
    wanted = tokens(mask, block, q_len, kv_len, made.problem.offset, causal).flatten(0, 1).cpu()
    assert torch.equal(expanded(made.by_query, q_len, kv_len, keys_own=False), wanted)
    assert torch.equal(expanded(made.by_key, kv_len, q_len, keys_own=True), wanted)
    assert torch.equal(reference.dense_mask(made.runs).cpu(), wanted)
    for lists in (made.by_query, made.by_key):
        assert_work_is_whole(lists)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 200), st.integers(8, 3000), st.integers(0, 2**31))
def test_work_table_serves_any_cost(groups, lines, most, seed):
    cost = torch.rand(groups, lines, generator=torch.Generator().manual_seed(seed)).pow(8) * most
    jobs, splits = work_table(cost, spare_parts(lines, most))
    numbers = torch.tensor([16, lines, 64, 64, 16, 64, 2 * splits.shape[1], 0])
    none = torch.empty(0)
    assert_work_is_whole(TileLists(numbers, *[none] * 8, torch.zeros(1), jobs, splits))
    line, _, parts, _ = jobs.unbind(-1)
    share = torch.where(line >= 0, cost.gather(1, line.clamp(min=0).long()) / parts, -1)
    assert (share.diff(dim=-1) <= 0).all()  # most work first
    assert jobs.shape[1] <= lines + max(8, lines // 8)


def assert_same_lists(got: TileLists, wanted: TileLists) -> None:
    """Every number the same, up to where the lists end; what lies past it nobody reads."""
    per_tile = wanted.tile // wanted.granule
    ends = {"full_units": int(wanted.full_ptr[-1]) * per_tile}
    ends |= dict.fromkeys(("masked_units", "low", "high", "bits"), int(wanted.masked_ptr[-1]) * per_tile)
    for field in dataclasses.fields(TileLists):
        mine, theirs = getattr(got, field.name), getattr(wanted, field.name)
        assert (mine.shape, mine.dtype, mine.device) == (theirs.shape, theirs.dtype, theirs.device), field.name
        end = ends.get(field.name)
        assert torch.equal(mine[:end], theirs[:end]), field.name


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_programs_make_the_lists_that_torch_makes(data):
    block = data.draw(st.tuples(st.sampled_from([16, 24, 32, 64]), st.sampled_from([1, 8, 24, 32, 64, 128, 256])))
    q_len, kv_len = data.draw(st.integers(1, 500)), data.draw(st.integers(1, 500))
    batch, heads, causal = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2)), data.draw(st.booleans())
    offset = data.draw(st.sampled_from([None, 0, -7, 30, -(2**31 - 1), 2**31 - 1]))
    shape = batch, heads, -(-q_len // block[0]), -(-kv_len // block[1])
    mask = random_mask(
        *shape, density=data.draw(st.sampled_from([0.0, 0.1, 0.6, 1.0])), seed=data.draw(st.integers(0, 99))
    )
    source = BlockMask(mask, ps.Problem(q_len, kv_len, offset, heads), block, causal)
    for transposed in (False, True):
        side = source.side(transposed)
        got = lists_from_mask(mask, side, edge=EDGE, ctas=CTAS, shortest=SHORTEST_PART)
        assert_same_lists(got, lists_in_torch(mask, side))


@pytest.mark.parametrize(("ctas", "split"), [(1, 0), (4, 2), (CTAS, 2)])
def test_programs_split_long_lines_as_torch_does(ctas, split, monkeypatch):
    """One line of each group holds nearly everything; the fewer programs in flight, the fewer the parts."""
    monkeypatch.setattr("attention_core.block_mask.CTAS", ctas)
    mask = random_mask(1, 2, 9, 1100, density=0.01)
    mask[0, 0, 7] = mask[0, 1, 8] = True
    side = BlockMask(mask, ps.Problem(144, 17600, None, 2), (16, 16), False).side(False)
    wanted = lists_in_torch(mask, side)
    assert_same_lists(lists_from_mask(mask, side, edge=EDGE, ctas=ctas, shortest=SHORTEST_PART), wanted)
    assert int((wanted.splits[..., 0] >= 0).sum()) == split
    assert_work_is_whole(wanted)


class NoSync(TorchDispatchMode):
    """Fails on whatever makes the host wait for a device, or gives a shape that only the device knows."""

    REFUSED = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "item", "equal", "is_nonzero")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        assert not any(name.startswith(refused) for refused in self.REFUSED), f"{name} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("causal", [False, True])
def test_lists_are_built_without_waiting_for_the_device(causal):
    mask = random_mask(2, 3, 7, 9)
    sizes = dict(q_len=100, kv_len=140, block=16, causal=causal)
    with NoSync():
        made = plan_from_mask(mask, **sizes)
        _ = made.by_query, made.by_key
    # Fake tensors have no data at all: shapes must follow from shapes.
    with FakeTensorMode() as mode:
        fake = plan_from_mask(mode.from_tensor(mask), **sizes)
        shapes = [x.shape for lists in (fake.by_query, fake.by_key) for x in lists.tensors()]
    assert shapes == [x.shape for lists in (made.by_query, made.by_key) for x in lists.tensors()]
    with NoSync(), pytest.raises(AssertionError, match="waits for the device"):
        mask.nonzero()


@pytest.mark.parametrize(("backend", "deterministic"), [("blocked", False), ("reference", False), ("triton", True),
                                                        ("triton", False)])  # fmt: skip
@pytest.mark.parametrize(
    ("batch", "heads", "shape", "block", "offset", "causal"),
    [
        (2, 2, (2, 2), (16, 16), None, True),  # lists for each batch entry and head
        (2, 2, (2, 1), (16, 16), None, False),  # for each batch entry, the same for all heads
        (1, 2, (1, 2), (32, 32), 3, True),  # for each head
    ],
)
def test_backends_agree(batch, heads, shape, block, offset, causal, backend, deterministic):
    mask = random_mask(*shape, -(-40 // block[0]), -(-50 // block[1]))
    mask[0, 0, 1] = False  # a query block without keys
    made = plan_from_mask(mask, q_len=40, kv_len=50, block=block, q_offset=offset, causal=causal)
    allowed = tokens(mask, block, 40, 50, 10 if offset is None else offset, causal).expand(batch, heads, 40, 50)
    exact = qkv(batch, heads, heads // 2, 40, 50, 16, 16, device=DEVICE)
    parts = [naive.attention(*(x[b : b + 1] for x in exact), allowed[b].cpu().numpy()) for b in range(batch)]
    wanted = gradients(torch.cat([o for o, _ in parts]), torch.cat([x for _, x in parts]), exact)
    dtype = torch.float32 if backend == "triton" else torch.float64
    inputs = tuple(x.detach().to(dtype).requires_grad_() for x in exact)
    got = gradients(
        *block_sparse_attention(*inputs, made, return_lse=True, backend=backend, deterministic=deterministic), inputs
    )
    assert_same(tuple(x.double() for x in got), wanted, 2e-5 if dtype == torch.float32 else 1e-11)


def test_dropout_of_batch_entries_is_the_same_in_every_backend():
    mask = random_mask(2, 2, 2, 2, density=0.8)
    made = plan_from_mask(mask, q_len=30, kv_len=30, block=16, causal=True)
    inputs = tuple(x.detach() for x in qkv(2, 2, 1, 30, 30, 16, 16, torch.float32, DEVICE))
    results = [
        block_sparse_attention(*inputs, made, backend=b, dropout_p=0.5, seed=4)
        for b in ("reference", "blocked", "triton")
    ]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-5, rtol=1e-5)


def test_a_plan_keeps_its_own_mask_and_survives_copies():
    mask = random_mask(2, 1, 3, 3)
    made = plan_from_mask(mask, q_len=48, kv_len=48, block=16)
    inputs = qkv(2, 2, 2, 48, 48, 8, 8, device=DEVICE)
    wanted = run(*inputs, made, "blocked")
    mask.fill_(False)
    for again in (made, pickle.loads(pickle.dumps(made)), copy.deepcopy(made), made.to(DEVICE)):
        found = run(*inputs, again, "blocked")
        for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
            # The blocked backend adds dK and dV by index_add_, which on a GPU has no fixed order.
            unordered = DEVICE == "cuda" and name in ("dk", "dv")
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12 if unordered else 0)


def test_batch_size_must_be_the_plans():
    made = plan_from_mask(random_mask(2, 1, 1, 1), q_len=16, kv_len=16, block=16)
    x = torch.zeros(3, 1, 16, 4, device=DEVICE)
    with pytest.raises(ps.StudioError, match="the plan is for batch size 2, q has 3; make the mask for this batch, or"):
        block_sparse_attention(x, x, x, made)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (torch.ones(1, 1, 2, 2), "mask must be a dense bool tensor, True where a tile is kept, got torch.float32"),
        ([[True]], "got list"),
        (torch.ones(2, 2, dtype=torch.bool), r"\[batch or 1, heads or 1, q_blocks, kv_blocks\], got \[2, 2\]"),
        (torch.ones(1, 1, 2, 3, dtype=torch.bool), "must have 2 query and 2 key blocks for q_len 20, kv_len 20 and"),
    ],
)
def test_masks_are_refused(mask, text):
    with pytest.raises(ps.StudioError, match=text):
        plan_from_mask(mask, q_len=20, kv_len=20, block=16)
