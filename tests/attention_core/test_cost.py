"""Work and memory follow the active tiles: counted, not timed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels import schedule

from .inputs import qkv, run
from .layouts import from_mask

CHUNK = schedule.chunk_elements(torch.device("cpu"))


class Largest(TorchDispatchMode):
    """Elements of the largest tensor storage that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return result


@pytest.mark.parametrize(
    ("text", "block"),
    [("causal & window(127, 0)", 64), ("causal & (window(63, 0) | sink(4))", (64, 1)), ("window(8, 8)", (16, 8))],
)
def test_nothing_of_size_n_by_n(text, block):
    n = 8192
    ready = plan(ps.lower(ps.parse(text), q_len=n, block=block))
    q, k, v = qkv(1, 1, 1, n, n, 8, 8, torch.float32)
    with Largest() as largest:
        run(q, k, v, ready, "blocked")
    assert largest.elements <= 1.1 * CHUNK < n * n / 10


@pytest.mark.parametrize("text", ["globals(rows=(5,))", "dense"])
def test_a_row_that_sees_every_key_is_cut(text):
    ready = plan(ps.lower(ps.parse(text), q_len=64, kv_len=40_000, block=64))
    inputs = qkv(2, 4, 2, 64, 40_000, 4, 4, torch.float32)
    with Largest() as largest:
        run(*inputs, ready, "blocked")
    # 2 * 4 * 64 * 40,000 scores would be 20 million; nothing but k, v and their gradients exceeds a chunk.
    assert largest.elements <= 1.1 * CHUNK


@pytest.mark.parametrize("batch_heads", [(300, 4), (1, 1200)])
def test_many_batch_entries_or_heads_are_cut(batch_heads):
    batch, heads = batch_heads
    ready = plan(ps.lower(ps.parse("causal"), q_len=128, block=64))
    inputs = qkv(batch, heads, heads, 128, 128, 2, 2, torch.float32)
    with Largest() as largest:
        run(*inputs, ready, "blocked")
    assert largest.elements <= 1.1 * CHUNK  # 19.7 million scores


@pytest.mark.parametrize("block", [(32, 32), (64, 8), (32, 1)])
@pytest.mark.parametrize("density", [0.02, 0.1, 0.5])
def test_products_follow_the_tile_pairs(block, density):
    rng = np.random.default_rng(1)
    tiles = rng.random((2, 512 // block[0], 512 // block[1])) < density * rng.uniform(0.2, 1.8, (2, 512 // block[0], 1))
    layout = from_mask(np.kron(tiles, np.ones(block, bool)).astype(bool), block)
    inputs = qkv(1, 2, 2, 512, 512, 16, 16, torch.float32)
    with FlopCounterMode(display=False) as forward:
        out = block_sparse_attention(*inputs, plan(layout), backend="blocked")
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    # 2 and 5 products of 16 multiply-adds a pair; lines of a chunk are padded by at most a quarter.
    pairs = layout.tile_pairs
    assert 1 <= forward.get_total_flops() / (2 * 2 * 16 * pairs) <= 1.25
    assert 1 <= backward.get_total_flops() / (5 * 2 * 16 * pairs) <= 1.25


def test_heads_of_one_layout_share_index_computation():
    mask = np.random.default_rng(2).random((1, 64, 64)) < 0.3
    together = list(schedule.chunks(plan(from_mask(mask, (16, 8))).runs, 2, 12, 4, 32))
    assert {(c.heads_per_pack, len(c.packs)) for c in together} == {(3, 4)}
    assert sum(len(c.lines) for c in together) == 4


LIMITED = """
import resource, sys, torch
torch.set_num_threads(1)
import pattern_studio as ps
from attention_core import block_sparse_attention, plan
def run(n):
    ready = plan(ps.lower(ps.parse("causal & window(127, 0)"), q_len=n, block=64))
    q, k, v = torch.randn(3, 1, 1, n, 8).requires_grad_()
    block_sparse_attention(q, k, v, ready).sum().backward()
run(1024)
n, extra = int(sys.argv[1]), int(sys.argv[2])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))
run(n)
print("ran")
torch.empty(n, n, dtype=torch.bool)
"""


def test_a_window_runs_in_little_memory():
    # With 250 MB of address space to spare a window over 32,768 tokens runs; one byte a pair would not fit.
    limited = [sys.executable, "-W", "ignore", "-c", LIMITED, "32768", "250000000"]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.stdout == "ran\n", done.stderr
    assert "not enough memory" in done.stderr or "can't allocate memory" in done.stderr
