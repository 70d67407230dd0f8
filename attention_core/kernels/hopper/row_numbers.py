"""LSE and delta of a tile's queries, by the producer's warp: they come through shared memory, beside the tile.

Loaded by the consumers, each number with its address, they took registers that sums of gradients don't leave.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .gluon_api import thread_barrier


@gluon.jit
def load_numbers(lse2, delta, base, row, q_len, N: gl.constexpr):
    """LSE and delta of the N queries from `row` on, past the end +inf, so that p = 0, and 0. # float32 [N] each"""
    rows = row + gl.arange(0, N, layout=gl.BlockedLayout([N // 32], [32], [1], [0]))
    lse = gl.load(lse2 + base + rows, mask=rows < q_len, other=float("inf"))
    return lse, gl.load(delta + base + rows, mask=rows < q_len, other=0.0)


@gluon.jit
def send_numbers(loaded, numbers, x_full, y_full, slot):
    """Store them in a slot of their rings and say so to those who wait for the slot's tiles."""
    lse, delta = loaded
    lse_ring, delta_ring = numbers
    lse_ring.index(slot).store(lse)
    delta_ring.index(slot).store(delta)
    thread_barrier()
    mbarrier.arrive(x_full.index(slot))
    mbarrier.arrive(y_full.index(slot))
