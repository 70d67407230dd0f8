"""The programs of scores and choices say what the torch code beside them says."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pattern_studio.learned import BlockGate, Tiling, mean_query, pooled, probes, programs, top_k
from pattern_studio.learned.programs import grouped_mass, query_means

PHASES = tuple(phase for phase in Phase if phase is not Phase.shrink)  # interpreted programs are slow
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
few = settings(
    max_examples=8, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def both(monkeypatch, call) -> tuple[Tensor, Tensor]:
    """A call's result by programs, on a CPU in Triton's interpreter, and by torch."""
    found = []
    for wanted in (True, False):
        monkeypatch.setattr(programs, "on_device", lambda x, wanted=wanted: wanted)
        with torch.no_grad():
            found.append(call())
    return found[0], found[1]


@st.composite
def problems(draw) -> tuple[Tensor, Tensor, Tiling, Tensor | None]:
    """q and k of whole, half or single precision, with keys of padding that hold NaN."""
    batch, kv_heads, share = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    q_len, extra = draw(st.integers(1, 70)), draw(st.integers(0, 30))
    block = draw(st.sampled_from([(16, 16), (32, 8), (16, 1), (64, 128)]))
    tiling = Tiling(q_len, q_len + extra, block, None, draw(st.booleans()))
    made = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    q = torch.randn(batch, kv_heads * share, q_len, 24, generator=made)
    k = torch.randn(batch, kv_heads, q_len + extra, 24, generator=made)
    lengths = None
    if draw(st.booleans()):
        lengths = torch.randint(1, q_len + extra + 1, (batch,), generator=made)
        for item, own in enumerate(lengths.tolist()):
            k[item, :, own:], q[item, :, max(own - extra, 0) :] = torch.nan, torch.nan
    dtype = draw(st.sampled_from([torch.float16, torch.float32]))
    return q.to(DEVICE, dtype), k.to(DEVICE, dtype), tiling, None if lengths is None else lengths.to(DEVICE)


def assert_near(got: Tensor, wanted: Tensor, q: Tensor) -> None:
    """The same tiles are seen, and scores differ by rounding: of inputs to 11 bits, or of sums to 24."""
    assert torch.equal(torch.isinf(got), torch.isinf(wanted))
    assert got.dtype == wanted.dtype
    assert not got.isnan().any()
    allowed = 1e-2 if q.dtype == torch.float16 else 3e-5
    torch.testing.assert_close(got, wanted, atol=allowed, rtol=allowed)


@pytest.mark.parametrize("score", [pooled, mean_query, probes])
@few
@given(problem=problems())
def test_scores_are_those_of_torch(monkeypatch, score, problem):
    q, k, tiling, lengths = problem
    got, wanted = both(monkeypatch, lambda: score(q, k, tiling, lengths=lengths))
    assert_near(got, wanted, q)


@few
@given(problem=problems(), seed=st.integers(0, 99))
def test_gate_is_that_of_torch(monkeypatch, problem, seed):
    q, k, tiling, lengths = problem
    torch.manual_seed(seed)
    gate = BlockGate(q.shape[1], k.shape[1], 24, tiling.block, pool=(16, 1)).to(DEVICE)
    for parameter in gate.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    got, wanted = both(monkeypatch, lambda: gate(q, k, causal=tiling.causal, q_offset=tiling.offset, lengths=lengths))
    # A share far below a row's largest is a difference of large numbers.
    assert torch.equal(torch.isinf(got), torch.isinf(wanted))
    allowed = 4e-2 if q.dtype == torch.float16 else 2e-4
    torch.testing.assert_close(got, wanted, atol=allowed, rtol=allowed)


@few
@given(data=st.data())
def test_choice_is_exact_with_ties_and_without_numbers(monkeypatch, data):
    block = data.draw(st.sampled_from([(16, 16), (16, 4), (32, 1)]))
    tiling = Tiling(data.draw(st.integers(40, 90)), 90, block, None, data.draw(st.booleans()))
    made = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    shape = 2, 2, tiling.q_blocks, tiling.kv_blocks
    scores = torch.randint(-3, 4, shape, generator=made) * data.draw(st.sampled_from([0.0, -0.0, 1.0, 1e-40, 3e38]))
    odd = torch.rand(shape, generator=made)
    scores[odd < 0.1], scores[odd > 0.9], scores[(odd > 0.5) & (odd < 0.55)] = torch.nan, torch.inf, -torch.inf
    scores = scores.to(DEVICE, data.draw(st.sampled_from([torch.float32, torch.float16])))
    lengths = data.draw(st.sampled_from([None, torch.tensor([90, 47], device=DEVICE)]))
    total, protected = tiling.counts(1, True)  # less than what these take is refused, before any program runs
    density = max(data.draw(st.sampled_from([0.6, 0.8, 1.0])), protected / total)
    got, wanted = both(monkeypatch, lambda: top_k(scores, tiling, density, lengths=lengths))
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("score", [pooled, mean_query])
def test_an_item_is_chosen_the_same_whoever_is_beside_it(monkeypatch, score):
    monkeypatch.setattr(programs, "on_device", lambda x: True)
    made = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, heads, 96, 16, generator=made).to(DEVICE, torch.float16) for heads in (4, 2))
    tiling = Tiling(96, 96, (16, 16))
    alone = score(q[:1], k[:1], tiling)
    lengths = torch.tensor([96, 50], device=DEVICE)
    beside = score(q, k, tiling, lengths=lengths)
    assert torch.equal(alone, beside[:1])
    chosen = top_k(beside, tiling, 0.6, lengths=lengths)
    assert torch.equal(chosen[:1], top_k(alone, tiling, 0.6))


@pytest.mark.parametrize(("share", "block"), [(3, (16, 32)), (1, (64, 128)), (4, (12, 16))])
def test_means_and_masses_of_many_programs_are_those_of_torch(monkeypatch, share, block):
    """Chunks of rows, parts of keys and steps of a part, some above the diagonal; how work is cut changes no bit."""
    made = torch.Generator().manual_seed(share)
    q, k = (torch.randn(1, heads, n, 16, generator=made).to(DEVICE, torch.float16)
            for heads, n in ((2 * share, 700), (2, 1000)))  # fmt: skip
    tiling = Tiling(700, 1000, block)
    for lengths in (None, torch.tensor([850], device=DEVICE)):
        found = []
        for steps, tokens in ((3, 128), (16, 512)):
            monkeypatch.setattr(grouped_mass, "STEPS", steps)
            monkeypatch.setattr(query_means, "TOKENS", tokens)
            got, wanted = both(monkeypatch, lambda lengths=lengths: mean_query(q, k, tiling, lengths=lengths))
            assert_near(got, wanted, q)
            found.append(got)
        assert torch.equal(*found)


def test_masses_by_group_take_means_of_the_other_program(monkeypatch):
    monkeypatch.setattr(query_means, "STEP", 0)  # as where a block of q is too large for one step
    made = torch.Generator().manual_seed(5)
    q, k = (torch.randn(1, heads, 90, 16, generator=made).to(DEVICE, torch.float16) for heads in (4, 2))
    assert_near(*both(monkeypatch, lambda: mean_query(q, k, Tiling(90, 90, (16, 32)))), q)


def test_programs_are_left_aside_where_a_gradient_is_asked_for(monkeypatch):
    monkeypatch.setattr(programs, "on_device", lambda x: True)
    gate = BlockGate(2, 1, 8, 16).to(DEVICE)
    q, k = torch.randn(1, 2, 40, 8, device=DEVICE), torch.randn(1, 1, 40, 8, device=DEVICE)
    gate(q, k).exp().square().sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in gate.parameters())
    assert programs.served(q)
    assert not programs.served(q.clone().requires_grad_())
    assert not programs.served(q.double())


def test_programs_compile_for_sm_90(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.learned.compile_programs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    made = {row["variant"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert {row["program"] for row in made.values()} == {
        "block_sums", "tile_mass", "shares", "best", "crossed", "means", "chosen", "query_means", "grouped_mass"
    }  # fmt: skip
    assert all(row["sm_90"] and row["shared"] <= 227 * 1024 for row in made.values())
    multiplied = ("mass", "mass_keys", "mass_near", "mass_wide", "chosen_512", "query_means_128", "grouped_mass_128")
    assert all(made[name]["tensor_cores"] for name in multiplied)
    assert not made["mass_single"]["tensor_cores"]
