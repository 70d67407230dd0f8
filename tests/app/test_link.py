"""Links: every work survives the round trip, and nothing hostile gets through or breaks anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_studio_app.link import MAX_LINK, from_params, to_params
from pattern_studio_app.work import MAX_BLOCK, MAX_HEADS, MAX_LENGTH, Work

from ..strategies import plain

works = st.builds(
    Work,
    text=plain.map(str).filter(lambda text: len(text) <= MAX_LINK),
    q_len=st.integers(1, MAX_LENGTH),
    kv_len=st.none() | st.integers(1, MAX_LENGTH),
    heads=st.integers(1, MAX_HEADS),
    block_q=st.integers(1, MAX_BLOCK),
    block_k=st.integers(1, MAX_BLOCK),
    docs=st.sampled_from(["", "512, 512"]),
    layer=st.integers(0, 100),
    beside=st.lists(st.sampled_from(["causal", "dense &", "sink(4)"]), max_size=3).map(tuple),
).filter(lambda work: work.kv_len != work.q_len)


@given(works)
def test_round_trip(work):
    assert from_params(to_params(work)) == (work, ())


def test_an_address_without_a_work():
    assert from_params({}) is None
    assert from_params({"utm": "x"}) is None


def test_a_text_too_long_for_a_link():
    assert to_params(Work(text="causal" + " " * MAX_LINK)) is None


@given(st.dictionaries(st.sampled_from(["p", "q", "kv", "h", "bq", "bk", "layer", "docs", "vs1", "vs3"]), st.text()))
def test_any_parameters_give_a_work_or_notes(params):
    found = from_params(params)
    if found is not None:
        work, notes = found
        assert 1 <= work.q_len <= MAX_LENGTH
        assert all(len(note) < 300 for note in notes)
        work.problem  # noqa: B018 - its arguments are in range


@pytest.mark.parametrize("value", ["0", "-1", "1e9", "9" * 5000, "\u0663", "", " 8", "None", "4096.0"])
def test_numbers_out_of_range_are_named(value):
    work, notes = from_params({"p": "causal", "q": value})
    assert work.q_len == 1024
    assert len(notes) == 1
    assert notes[0].startswith("the link's q: expected a whole number from 1 to 1,048,576, got ")
    assert notes[0].endswith("; 1024 is used")


def test_bad_documents_are_named():
    work, notes = from_params({"p": "causal & docs", "docs": "<script>"})
    assert work.docs == ""
    assert notes[0].startswith("the link's docs: expected document lengths")
