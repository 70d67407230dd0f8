"""Who works which entry of the table: the producer claims it and posts it to both consumers.

An entry is claimed from a counter in global memory when its turn has come. So lines of unlike length, slower
multiprocessors and ones that another kernel holds leave no program with more than its share; with a fixed stride
they do. Without CLAIMED, for tables of a few entries a program, the stride spares the counter, which must be zero.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .gluon_api import thread_barrier


@gluon.jit
def new_post():
    """Shared memory for the entry posted, with the barriers that say that it is there, and read by both."""
    number = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(there, count=1)
    mbarrier.init(free, count=2)
    return number, there, free


@gluon.jit
def claim(counter, turn, CLAIMED: gl.constexpr):
    """The entry that this program works after `turn`."""
    if CLAIMED:
        return gl.atomic_add(counter, 1, sem="relaxed")
    else:
        return turn + gl.num_programs(0)


@gluon.jit
def post(posts, phase, turn):
    """Tell the consumers which entry comes next, or -1 when none does. By the producer's one warp."""
    number, there, free = posts
    mbarrier.wait(free, phase ^ 1)
    number.store(gl.full([1], turn, gl.int32, gl.BlockedLayout([1], [32], [1], [0])))
    thread_barrier()
    mbarrier.arrive(there)
    return phase ^ 1


@gluon.jit
def posted(posts, phase):
    """The entry that comes next, by a consumer; and the phase of the post after it."""
    number, there, free = posts
    mbarrier.wait(there, phase)
    turn = gl.max(number.load(gl.BlockedLayout([1], [32], [4], [0])), 0)
    thread_barrier()
    mbarrier.arrive(free)
    return turn, phase ^ 1
