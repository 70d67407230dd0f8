"""Who works which entry of the table: a producer claims it and posts what it says to the consumers.

An entry is claimed from a counter in global memory when its turn has come. So lines of unlike length, slower
multiprocessors and ones that another kernel holds leave no program with more than its share; with a fixed stride
they do. Without CLAIMED, for tables of a few entries a program, the stride spares the counter, which must be zero.

The producer is ahead, so its reading of the table is hidden behind the consumers' work on the entry before: they
find the numbers in shared memory, where their own loads would take half a microsecond an entry.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .gluon_api import thread_barrier


@gluon.jit
def new_post(COUNT: gl.constexpr, READERS: gl.constexpr):
    """Shared memory for COUNT numbers of an entry, with the barriers that say that they are there, and read by all."""
    numbers = gl.allocate_shared_memory(gl.int32, [COUNT, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(there, count=1)
    mbarrier.init(free, count=READERS)
    return numbers, there, free


@gluon.jit
def claim(counter, turn, CLAIMED: gl.constexpr):
    """The entry that this program works after `turn`."""
    if CLAIMED:
        return gl.atomic_add(counter, 1, sem="relaxed")
    else:
        return turn + gl.num_programs(0)


@gluon.jit
def post(posts, phase, entry):
    """Tell the consumers the numbers of the next entry, or -1 as the first when none comes; by the producer's warp."""
    numbers, there, free = posts
    mbarrier.wait(free, phase ^ 1)
    for i in gl.static_range(len(entry)):
        numbers.index(i).store(gl.full([1], entry[i], gl.int32, gl.BlockedLayout([1], [32], [1], [0])))
    thread_barrier()
    mbarrier.arrive(there)
    return phase ^ 1


@gluon.jit
def posted(posts, phase, COUNT: gl.constexpr, WARPS: gl.constexpr):
    """The COUNT numbers of the entry that comes next, by a reader of WARPS warps; and the phase after it."""
    numbers, there, free = posts
    mbarrier.wait(there, phase)
    entry = ()
    for i in gl.static_range(COUNT):
        entry = entry + (gl.max(numbers.index(i).load(gl.BlockedLayout([1], [32], [WARPS], [0])), 0),)
    thread_barrier()
    mbarrier.arrive(free)
    return entry, phase ^ 1
