"""Sharded attention equals attention on one device, on real processes over gloo."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from tests import strategies

from . import work
from .ranks import TIMEOUT, Ranks

NAMES = ("out", "lse", "dq", "dk", "dv")
ROWS = [
    "causal",
    "causal & (window(20, 0) | sink(3))",
    "causal & docs",
    "heads({0:2: causal & window(9, 0), 2:4: strided(7) | window(3, 3)})",
    "rect(range(0, 16), range(0, 90)) | random(3, seed=1)",
    "empty",
]


def assert_equal_to_one_device(pool, ranks, text, problem, block, tensors, options, tolerance=1e-10):
    whole = work.one_device(text, problem, block, tensors)
    found = work.joined(pool.run(work.both_passes, ranks, text, problem, block, tensors, options), whole)
    for name, one, many in zip(NAMES, whole, found, strict=True):
        np.testing.assert_allclose(many, one, atol=tolerance, rtol=tolerance, err_msg=name)


@st.composite
def cases(draw):
    """A pattern with a non-empty problem, heads for queries and keys, and a way to shard it."""
    problem = draw(strategies.problems(heads=draw(st.sampled_from([2, 4]))).filter(lambda p: p.q_len and p.kv_len))
    text = str(draw(strategies.patterns(problem.heads)))
    options = {
        "way": draw(st.sampled_from(["auto", "contiguous", "zigzag", "balanced"])),
        "mode": draw(st.sampled_from(["auto", "fetch", "ring"])),
    }
    if options["mode"] == "fetch":
        options |= {name: draw(st.sampled_from([None, True, False])) for name in ("overlap", "common")}
        options["deterministic"] = draw(st.booleans())
    kv_heads = draw(st.sampled_from([1, 2]))
    return text, problem, draw(strategies.blocks), draw(st.integers(1, 2)), kv_heads, options, draw(st.integers(0, 99))


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(2, 4))
def test_any_pattern_on_any_ranks(four_ranks, case, ranks):
    text, problem, block, batch, kv_heads, options, seed = case
    tensors = work.tensors_for(problem, batch, kv_heads, (3, 2), seed)
    assert_equal_to_one_device(four_ranks, ranks, text, problem, block, tensors, options)


WAYS = [
    {"mode": "ring"},
    *({"mode": "fetch", "overlap": overlap, "common": common} for overlap in (True, False) for common in (True, False)),
]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("text", ROWS)
def test_named_patterns(four_ranks, text, options):
    problem = ps.Problem(90, heads=4, docs=(30, 7, 53))
    tensors = work.tensors_for(problem, 2, 2, (8, 5), 1)
    assert_equal_to_one_device(four_ranks, 3, text, problem, (16, 8), tensors, options)


@pytest.mark.parametrize("options", [one for one in WAYS if one["mode"] == "fetch"])
@pytest.mark.parametrize("text", ROWS)
def test_programs_that_move_rows_change_no_bit(four_ranks, text, options):
    problem = ps.Problem(90, heads=4, docs=(30, 7, 53))
    tensors = work.tensors_for(problem, 2, 2, (8, 5), 1, dtype=torch.float32)
    arguments = work.both_passes, text, problem, (16, 8), tensors, options
    plain = four_ranks.run(work.both_passes, 3, *arguments[1:])
    for one, other in zip(plain, four_ranks.run(work.by_programs, 3, *arguments), strict=True):
        for want, got in zip(one, other, strict=True):
            np.testing.assert_array_equal(got, want)


def test_uneven_shards_and_ranks_without_rows(four_ranks):
    problem = ps.Problem(40, heads=2)
    tensors = work.tensors_for(problem, 1, 1, (4, 4), 2)
    assert_equal_to_one_device(four_ranks, 4, "causal", problem, 32, tensors, {"way": "contiguous"})


def test_half_precision_within_the_error_budget(four_ranks):
    """At most twice the error of dense attention in the same dtype, with room for one rounding a part."""
    problem, text = ps.Problem(256, heads=2), "causal & (window(63, 0) | sink(4))"
    exact = work.tensors_for(problem, 1, 1, (32, 32), 3)
    half = {name: x.to(torch.bfloat16).to(torch.float64) for name, x in exact.items()}
    truth = work.one_device(text, problem, 32, half)
    rounded = {name: x.to(torch.bfloat16) for name, x in exact.items()}
    rounded["dlse"] = rounded["dlse"].float()
    found = four_ranks.run(work.both_passes, 4, text, problem, 32, rounded, {})
    one = work.one_device(text, problem, 32, rounded)
    for name, exactly, alone, many in zip(NAMES, truth, one, work.joined(found, truth), strict=True):
        error, allowed = np.abs(many - exactly).max(), np.abs(alone - exactly).max()
        assert error <= 2 * allowed + 1e-6, name


@pytest.mark.parametrize("options", WAYS)
def test_what_is_sent_is_what_was_counted(four_ranks, options):
    problem = ps.Problem(200, heads=4)
    tensors = work.tensors_for(problem, 2, 2, (4, 6), 4)
    for forward, backward, sent, received in four_ranks.run(
        work.sent_bytes, 4, "causal & (window(40, 0) | sink(3))", problem, 8, tensors, options
    ):
        assert (forward, backward) == (sent, received)  # gradients go back where their keys came from


@pytest.mark.parametrize(("differing", "what"), [(work.mismatched, "plan "), (work.mismatched_shapes, "batch 2")])
def test_ranks_that_differ_are_told_so_on_every_rank(four_ranks, differing, what):
    problem = ps.Problem(64, heads=2)
    tensors = work.tensors_for(problem, 1, 1, (4, 4), 5)
    found = four_ranks.ask(differing, 3, "causal", problem, 16, tensors, {})
    assert len(found) == 3
    for rank, (good, (kind, text, _)) in found.items():
        assert not good
        assert kind == "StudioError"
        assert f"the ranks must make one call, but rank {rank} has plan " in text
        assert what in text
    assert_equal_to_one_device(four_ranks, 3, "causal", problem, 16, tensors, {})  # and the group still works


@pytest.mark.parametrize(("fault", "telling"), [(work.leaves, [0, 1]), (work.sleeps, [0, 1, 2])])
def test_a_rank_that_dies_or_hangs_is_a_clear_error_on_every_other(tmp_path, fault, telling):
    pool = Ranks(3, tmp_path, seconds=8)
    problem = ps.Problem(64, heads=2)
    tensors = work.tensors_for(problem, 1, 1, (4, 4), 6)
    try:
        arguments = ("causal", problem, 16, tensors, {})
        pool.run(work.both_passes, 3, *arguments)  # all have started
        begin = time.monotonic()
        found = pool.ask(fault, 3, *arguments)
        took = time.monotonic() - begin
    finally:
        pool.close()
    assert sorted(found) == telling  # all that live answered, and the one that came too late, too
    assert took < TIMEOUT
    for good, (kind, text, _) in found.values():
        assert not good
        assert kind == "StudioError"
        assert "a rank died, hangs or" in text
