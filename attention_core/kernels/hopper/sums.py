"""The float32 sums of dQ, zeroed and finished beside the program that adds them up, by whoever has nothing else to do.

A place is a key head of a batch entry, with the query heads that read it. Its sums are zeroed in chunks, entries of the
work table wait for that, and its dQ is made in chunks when all its entries have been worked. One warp pair of each
program takes chunk after chunk, its consumers join it at the end. A chunk is claimed only by a warp that then does it,
all are zeroed before any is finished, and entries are claimed too (claims.py): so what anybody waits for is being
done by a program that runs, however few of them do.

`state` is int32 [STATE + 2 * places], 0 at first: the flag that a gradient is not finite, entries claimed, chunks
claimed, nothing; then of each place how many chunks are zeroed, and how often consumers, both for each entry, have
reported that they are through.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .gluon_api import thread_barrier

STATE: gl.constexpr = gl.constexpr(4)
FLAG, ENTRIES, CHUNKS = gl.constexpr(0), gl.constexpr(1), gl.constexpr(2)
PART: gl.constexpr = gl.constexpr(4096)  # numbers: 64 rows of 64 columns, in the order of a product's registers
CHUNK: gl.constexpr = gl.constexpr(4)  # parts


@gluon.jit
def fence_proxies():
    """Order plain accesses to global memory and those of the copy engine, which adds to the sums."""
    lane = gl.arange(0, 32, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    gl.inline_asm_elementwise(
        "fence.proxy.async; mov.b32 $0, $1;", "=r,r", [lane], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def await_count(counter, count):
    """Wait until a counter in global memory has reached `count`; what was written before it was raised is seen."""
    lane = gl.arange(0, 32, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    while gl.atomic_add(counter, 0, sem="acquire") < count:
        gl.inline_asm_elementwise(
            "nanosleep.u32 100; mov.b32 $0, $1;", "=r,r", [lane], dtype=gl.int32, is_pure=False, pack=1
        )


@gluon.jit
def chunks_of(q_len, members, D: gl.constexpr):
    """Chunks of a place."""
    return (members * ((q_len + 63) // 64) * (D // 64) + CHUNK - 1) // CHUNK


@gluon.jit
def report_worked(state, place, some):
    """Say that this consumer's additions to a place, all that it has begun so far, are in memory."""
    lane = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    # Gluon's own wait is for the reading of shared memory only.
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; mov.b32 $0, $1;", "=r,r", [lane], dtype=gl.int32, is_pure=False, pack=1
    )
    fence_proxies()
    thread_barrier()
    gl.atomic_add(state + STATE + 1 + 2 * place, 1, mask=some, sem="release")


@gluon.jit
def _zero(sums, begin, end, WARPS: gl.constexpr):
    n = gl.arange(0, WARPS * 128, layout=gl.BlockedLayout([4], [32], [WARPS], [0]))
    zeros = gl.zeros([WARPS * 128], gl.float32, gl.BlockedLayout([4], [32], [WARPS], [0]))
    for at in range(begin, end, WARPS * 128):
        gl.store(sums + at + n, zeros)


@gluon.jit
def place_in_part(n):
    """Row and column of number n of a part (the other way round: in_register_order in backward_adding.py)."""
    # Bits of n from the lowest: 1 + 1 of the column, 2 + 3 of the lane, 2 of the warp, 2 of the column, 1 of the row.
    row = n // 128 % 4 * 16 + n // 2048 * 8 + n // 16 % 8
    return row, n // 512 % 4 * 16 + n // 2 % 2 * 8 + n // 4 % 4 * 2 + n % 2


@gluon.jit
def _finish(sums, dq, flag, part, head, of_head, q_len, scale, D: gl.constexpr, WARPS: gl.constexpr,
            STEP: gl.constexpr):  # fmt: skip
    """dq of part `of_head` of a head: its sums times `scale`; the flag is raised by one that is not finite."""
    L: gl.constexpr = gl.BlockedLayout([4], [32], [WARPS], [0])
    PANELS: gl.constexpr = D // 64
    first = of_head // PANELS * 64
    out = dq + (head.to(gl.int64) * q_len + first) * D + of_head % PANELS * 64
    for begin in range(0, PART, STEP):
        n = begin + gl.arange(0, STEP, layout=L)
        x = gl.load(sums + part.to(gl.int64) * PART + n, cache_modifier=".cg")
        row, column = place_in_part(n)
        real = first + row < q_len
        gl.store(out + row * D + column, (x * scale).to(dq.dtype.element_ty), mask=real)
        gl.store(flag + n * 0, gl.full([STEP], 1, gl.int32, L), mask=real & (x * 0.0 != 0))


@gluon.jit
def tend(sums, dq, state, each, places, members, q_len, scale, D: gl.constexpr, WARPS: gl.constexpr,
         STEP: gl.constexpr):  # fmt: skip
    """Take chunks until none is left."""
    rows = (q_len + 63) // 64
    of_head = rows * (D // 64)
    parts = members * of_head  # of a place
    chunks = chunks_of(q_len, members, D)
    task = gl.atomic_add(state + CHUNKS, 1, sem="relaxed")
    while task < 2 * places * chunks:
        place = task // chunks % places
        first = task % chunks * CHUNK
        last = gl.minimum(first + CHUNK, parts)
        base = place.to(gl.int64) * parts
        if task < places * chunks:
            _zero(sums, (base + first) * PART, (base + last) * PART, WARPS)
            fence_proxies()
            thread_barrier()
            gl.atomic_add(state + STATE + 2 * place, 1, sem="release")
        else:
            await_count(state + STATE + 2 * place, chunks)  # nobody else has, if the place has no entries
            await_count(state + STATE + 1 + 2 * place, 2 * gl.load(each + place))
            for part in range(first, last):
                _finish(sums, dq, state + FLAG, base + part, place * members + part // of_head, part % of_head, q_len,
                        scale, D, WARPS, STEP)  # fmt: skip
        task = gl.atomic_add(state + CHUNKS, 1, sem="relaxed")
