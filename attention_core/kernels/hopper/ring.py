"""What the Hopper programs share: rings of shared memory, turns between warpgroups, pinned values."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def next_slot(slot, phase, SLOTS: gl.constexpr):
    """The next slot of a ring and the parity of its barriers' phase."""
    slot = slot + 1
    wraps = slot == SLOTS
    return gl.where(wraps, 0, slot), gl.where(wraps, phase ^ 1, phase)


@gluon.jit
def afresh(index, slot):
    """`index`, in such a way that the compiler works out what follows from it in every turn of a loop.

    Else it keeps the addresses of the products' operands in registers that the loop doesn't have: they are stored to
    memory and loaded again in every turn, and moved in and out of the uniform registers besides. A slot of a ring is
    never 256, which the compiler does not find out.
    """
    return index + (slot >> 8)


@gluon.jit
def _barrier(INSTRUCTION: gl.constexpr):
    """One hardware barrier instruction of the 256 threads of both consumers; Gluon has none with a name."""
    lane = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.inline_asm_elementwise(
        INSTRUCTION + ", 256; mov.b32 $0, $1;", "=r,r", [lane], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def await_turn(GROUP: gl.constexpr, TURNS: gl.constexpr):
    """Wait until the other consumer has issued its products, so that one computes exponentials meanwhile."""
    if TURNS:
        if GROUP == 0:
            _barrier("bar.sync 8")
        else:
            _barrier("bar.sync 9")


@gluon.jit
def pass_turn(GROUP: gl.constexpr, TURNS: gl.constexpr):
    """Let the other consumer issue its products."""
    if TURNS:
        if GROUP == 0:
            _barrier("bar.arrive 9")
        else:
            _barrier("bar.arrive 8")


@gluon.jit
def meet():
    """Wait for the other consumer."""
    _barrier("bar.sync 10")


@gluon.jit
def pinned(x):
    """x, computed above this point.

    Without it ptxas 12.8 sinks the exponentials below the wait for the products that follows, and the
    two no longer overlap. The predicate is never true, and an event where it is: a test that ptxas
    sees through has no effect, a trap or a branch makes it serialise all products (C7518).
    """
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.f32 p, $1, 0f7E000000; @p pmevent 1; mov.b32 $0, $1; }",
        "=r,r",
        [x],
        dtype=gl.float32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def lane_sums(p, COLUMNS: gl.constexpr):
    """Row sums of p [64, COLUMNS] over what one thread holds: no shuffles in the loop. # [64, 4]"""
    return gl.sum(gl.sum(gl.reshape(p, [64, COLUMNS // 8, 4, 2]), 3), 1)
