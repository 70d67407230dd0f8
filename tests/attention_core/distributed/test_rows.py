"""Rows on their way between ranks: the Triton programs, in its interpreter, do to the bit what plain torch does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_core.distributed import plain_rows
from attention_core.distributed.transfer import returned
from attention_core.kernels.triton import key_rows

# The interpreter cuts float32 off to bfloat16 where a GPU rounds: bfloat16 is held to its bits where it is copied only.
DTYPES = [torch.float16, torch.float32]


def strided(shape: tuple[int, ...], order: str, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Random [batch, heads, keys, dim] whose memory is ordered otherwise, or has gaps, or none of it."""
    x = torch.randn(shape, generator=generator).to(dtype)
    if order == "by key":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if order == "by channel":
        return x.mT.contiguous().mT
    if order == "gaps":
        return torch.cat([x, x], -1)[..., : shape[-1]]
    return x


@st.composite
def shards(draw, dtypes=DTYPES):
    """(k, v, a generator) of one rank."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    batch, heads, keys = draw(st.integers(0, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 50))
    dims = draw(st.sampled_from([(16, 16), (5, 3), (1, 8), (8, 1)]))
    dtypes = draw(st.sampled_from([(x, x) for x in dtypes] + [(torch.float32, torch.float16)]))
    orders = st.sampled_from(["plain", "by key", "by channel", "gaps"])
    k, v = (
        strided((batch, heads, keys, dim), draw(orders), dtype, generator)
        for dim, dtype in zip(dims, dtypes, strict=True)
    )
    return k, v, generator


def some_rows(draw, k: torch.Tensor) -> torch.Tensor:
    """Rows of k, each at most once, in some order."""
    rows = k.shape[1] * k.shape[2]
    return torch.from_numpy(
        np.random.default_rng(draw(st.integers(0, 99))).permutation(rows)[: draw(st.integers(0, rows))]
    )


@settings(max_examples=60, deadline=None)
@given(shards([*DTYPES, torch.bfloat16]), st.data())
def test_packing(case, data):
    k, v, _ = case
    index = some_rows(data.draw, k)
    dtype = torch.promote_types(k.dtype, v.dtype)
    want = plain_rows.pack_rows(k, v, index, None, len(index), dtype)
    assert torch.equal(key_rows.pack_rows(k, v, index, None, len(index), dtype), want)
    slots = torch.arange(len(index)).flip(0) * 2 + 1
    want = plain_rows.pack_rows(k, v, index, slots, 2 * len(index) + 1, torch.float32)
    assert torch.equal(key_rows.pack_rows(k, v, index, slots, 2 * len(index) + 1, torch.float32), want)


@settings(max_examples=60, deadline=None)
@given(shards(), st.data())
def test_putting_in_place(case, data):
    k, v, generator = case
    place = some_rows(data.draw, k)
    width = k.shape[0] * (k.shape[3] + v.shape[3])
    take = torch.randperm(len(place) + 3, generator=generator)[: len(place)] if data.draw(st.booleans()) else None
    rows = len(place) if take is None else len(place) + 3
    table = torch.randn(rows, width, generator=generator).to(torch.promote_types(k.dtype, v.dtype))
    want, found = ([x.clone(memory_format=torch.contiguous_format) for x in (k, v)] for _ in range(2))
    plain_rows.put_rows(table, take, place, *want)
    key_rows.put_rows(table, take, place, *found)
    assert all(torch.equal(a, b) for a, b in zip(want, found, strict=True))


@settings(max_examples=60, deadline=None)
@given(shards([*DTYPES, torch.bfloat16]), st.integers(0, 9), st.booleans(), st.data())
def test_moving(case, more, take, data):
    """All rows to chosen ones of a longer buffer, and those of such a buffer back."""
    k, v, generator = case
    heads, keys = k.shape[1:3]
    index = torch.from_numpy(np.random.default_rng(data.draw(st.integers(0, 99))).permutation(heads * (keys + more)))
    index = index[: heads * keys]
    longer = [torch.randn(x.shape[0], heads, keys + more, x.shape[3], generator=generator).to(x.dtype) for x in (k, v)]
    sources, targets = (longer, (k, v)) if take else ((k, v), longer)
    want, found = ([x.clone(memory_format=torch.contiguous_format) for x in targets] for _ in range(2))
    plain_rows.move_rows(*sources, index, take, *want)
    key_rows.move_rows(*sources, index, take, *found)
    assert all(torch.equal(a, b) for a, b in zip(want, found, strict=True))
    returned_rows = [x.clone(memory_format=torch.contiguous_format) for x in sources]
    key_rows.move_rows(*found, index, not take, *returned_rows)
    assert all(torch.equal(a, b) for a, b in zip(returned_rows, sources, strict=True))


@settings(max_examples=80, deadline=None)
@given(shards(), st.integers(0, 5), st.data())
def test_adding_back(case, readers, data):
    k, v, generator = case
    sent = [some_rows(data.draw, k).sort().values for _ in range(readers)]
    rows = torch.cat([torch.empty(0, dtype=torch.int64), *sent]).numpy()
    back = returned(rows, np.arange(len(rows)))
    table = torch.randn(len(rows), k.shape[0] * (k.shape[3] + v.shape[3]), generator=generator)
    table = table.to(torch.promote_types(k.dtype, v.dtype))
    want, found, told = ([x.clone(memory_format=torch.contiguous_format) for x in (k, v)] for _ in range(3))
    plain_rows.add_rows(table, back.keys, back.rows, back.turns, *want)
    key_rows.add_rows(table, back.keys, back.rows, back.ends, *found)
    assert all(torch.equal(a, b) for a, b in zip(want, found, strict=True))
    sums, begin = [x.float().flatten(1, 2) for x in told], 0
    for each in sent:  # rank by rank, in float32, rounded once: what both are meant to be
        part = table[begin : begin + len(each)].view(len(each), k.shape[0], k.shape[3] + v.shape[3]).transpose(0, 1)
        sums[0][:, each] += part[..., : k.shape[3]].float()
        sums[1][:, each] += part[..., k.shape[3] :].float()
        begin += len(each)
    assert all(torch.equal(a, b.to(a.dtype).view(a.shape)) for a, b in zip(found, sums, strict=True))


def test_what_is_sent_and_comes_back_is_counted_once_a_reader():
    """Packed for three readers and returned as it was: every key has its own value and that of each reader."""
    k, v = torch.arange(12.0).view(1, 2, 6, 1), torch.arange(12.0).view(1, 2, 6, 1) * 10
    sent = np.array([0, 1, 7, 1, 1, 11])
    table = key_rows.pack_rows(k, v, torch.from_numpy(sent), None, 6, torch.float32)
    assert table.tolist() == [[n, 10.0 * n] for n in sent]
    back = returned(sent, np.arange(6))
    assert (back.keys[0], back.turns) == (1, [4, 1, 1])
    key_rows.add_rows(table, back.keys, back.rows, back.ends, k, v)
    times = 1 + np.bincount(sent, minlength=12)
    assert k.flatten().tolist() == (times * np.arange(12)).tolist()
    assert v.flatten().tolist() == (10 * times * np.arange(12)).tolist()


def test_a_row_far_into_a_tensor():
    """Offsets beyond 2**31 elements, in memory that is only claimed but for two rows."""
    k, v = (torch.empty(1, 2, 2**27 + 1, dim, dtype=torch.float16) for dim in (8, 1))
    k[0, 1, -1], v[0, 1, -1], end = torch.arange(8), 8, torch.tensor([2**28 + 1])
    assert torch.equal(key_rows.pack_rows(k, v, end, None, 1, k.dtype), torch.arange(9).half()[None])
    back = returned(end.numpy(), np.arange(1))
    key_rows.add_rows(torch.ones(1, 9).half(), back.keys, back.rows, back.ends, k, v)
    assert torch.equal(k[0, 1, -1], torch.arange(8).half() + 1)


@pytest.mark.parametrize("slots", [None, torch.tensor([2, 0])])
def test_the_operators_are_what_a_compiler_is_told(slots):
    k, v, two = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 3), torch.tensor([7, 3])
    torch.library.opcheck(key_rows.pack_operator, (k, v, two, slots, 2 if slots is None else 3, torch.float32))
    table = key_rows.pack_rows(k, v, two, slots, 2 if slots is None else 3, torch.float32)
    torch.library.opcheck(key_rows.put_operator, (table, slots, two, k, v))
    torch.library.opcheck(key_rows.move_operator, (k[:, :, :1], v[:, :, :1], two, False, k, v))
    back = returned(two.numpy(), np.arange(2))
    torch.library.opcheck(key_rows.add_operator, (table, back.keys, back.rows, back.ends, k, v))
