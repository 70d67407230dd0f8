"""The second look at what the Hopper programs mark: all of it and nothing else is computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pattern_studio as ps
from attention_core import plan
from attention_core.kernels.hopper import launch, launch_backward
from attention_core.kernels.triton import launch as portable
from attention_core.kernels.triton.lists import TileLists

HOPPER = "forward", "backward", "backward_adding"  # these no interpreter runs; their results are made up here
SCALE = 0.25
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _launch(program: Any, grid: int, *given: Any, **constants: Any) -> None:
    if program.__name__ not in HOPPER:
        program[(grid,)](*given, **constants)


@pytest.fixture(autouse=True)
def two_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (launch, launch_backward):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 2)


def _inputs(heads: int, q_len: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(1, heads, q_len, 64, generator=generator).half().to(DEVICE) for _ in range(4))


def _parts(lists: TileLists, heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = heads * lists.slots * lists.line_size
    return torch.zeros(rows * 64, device=DEVICE), torch.zeros(rows, device=DEVICE)


@pytest.mark.parametrize("told_so", [0, 1])
def test_marked_rows_and_no_others_are_computed_again_once_the_forward_has_told(told_so):
    heads, q_len = 17, 256  # 34 programs: more than one of the repair's looks after
    q, k, v, _ = _inputs(heads, q_len)
    lists = plan(ps.lower(ps.parse("causal & window(200, 0)"), q_len=q_len, block=128), device=DEVICE).by_query
    out, lse = portable.attention_forward(q, k, v, lists, SCALE)
    found, told = torch.full_like(out, 7.0), lse.clone()
    marked = torch.zeros(heads, 2, dtype=torch.bool, device=DEVICE)
    for head, tile, row in ((0, 0, 3), (5, 1, 200), (16, 0, 127), (16, 1, 128)):
        told[0, head, row] = torch.inf
        marked[head, tile] = True
    variant = launch.forward_variant(64, q.dtype)

    def launch_and_tell(program: Any, grid: int, *given: Any, **constants: Any) -> None:
        if program.__name__ == "forward":
            launch.work_of(lists, 1, heads).counts[2] = told_so
        _launch(program, grid, *given, **constants)

    launch._forward(
        lists, SCALE, variant, None, False, launch_and_tell, q, k, v, found, told, *_parts(lists, heads),
        torch.empty(0),
    )  # fmt: skip
    if not told_so:
        assert (found == 7).all()
        return
    rows = marked.repeat_interleave(128, 1)
    torch.testing.assert_close(found[0, rows], out[0, rows], atol=2e-3, rtol=0)
    torch.testing.assert_close(told, lse, atol=1e-4, rtol=0)
    assert (found[0, ~rows] == 7).all()


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("flag", [0, 1])
def test_gradients_are_computed_again_if_the_flag_is_up(flag, deterministic):
    heads, q_len = 3, 200
    q, k, v, dout = _inputs(heads, q_len)
    ready = plan(ps.lower(ps.parse("causal & window(90, 0)"), q_len=q_len, block=128), device=DEVICE)
    by_query, by_key = ready.by_query, ready.by_key
    out, lse = portable.attention_forward(q, k, v, by_query, SCALE)
    exact = portable.attention_backward(q, k, v, out, lse, dout, None, by_query, by_key, SCALE)
    found = [torch.full_like(x, 7.0) for x in (q, k, v)]
    # What the first program clears: numbers that it must overwrite.
    sums = torch.full((0 if deterministic else heads * 256 * 2, 32), 9.0, device=DEVICE)
    part_q, part_k = _parts(by_query, heads)[0], _parts(by_key, heads)[0]
    state = torch.tensor([9, 9, 9], dtype=torch.int32, device=DEVICE).split(1)

    def launch_and_flag(program: Any, grid: int, *given: Any, **constants: Any) -> None:
        if program.__name__ in HOPPER:
            assert [int(x) for x in state] in ([0, 0, 0], [flag, 0, 0])
            state[0].fill_(flag)
        _launch(program, grid, *given, **constants)

    launch_backward._backward(
        by_query, by_key, SCALE, None, deterministic, (None, None), False, launch_and_flag, q, k, v, dout, out, lse,
        lse, torch.empty_like(lse), torch.empty_like(lse), *found, *state, sums, part_q, part_k, part_k.clone(),
    )  # fmt: skip
    for name, mine, its in zip(("dq", "dk", "dv"), found, exact, strict=True):
        if flag:
            torch.testing.assert_close(mine, its, atol=4e-3, rtol=0)
        else:  # as they were; dq as what nobody added to
            assert (mine == (0 if name == "dq" and not deterministic else 7)).all(), name
