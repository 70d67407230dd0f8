"""How gradients leave the Hopper backward programs: through the copy engine, as parts, or as zeros."""

# ruff: noqa: N803, E741 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from .gluon_api import box_store


@gluon.jit
def leave(value, ring, place, box, box_ring, parts, batch, head, first, scratch, length, GROUP: gl.constexpr,
          D: gl.constexpr, SPLIT: gl.constexpr, O: gl.constexpr):  # fmt: skip
    """Store 64 rows of a gradient, through the buffer of the rows that it belongs to, or as a part in fp32."""
    if SPLIT:
        if scratch >= 0:
            r = gl.arange(0, 64, layout=gl.SliceLayout(1, O))
            c = gl.arange(0, D, layout=gl.SliceLayout(0, O))
            start = (scratch.to(gl.int64) + GROUP * 64) * D
            gl.store(parts + start + (r[:, None] * D + c[None, :]), value,
                     mask=(first + r < length)[:, None] & (c >= 0)[None, :])  # fmt: skip
        else:
            ring.index(place).store(value.to(ring.dtype))
            fence_async_shared()
            box_store(box, [batch, head, first, 0], box_ring.index(place))
    else:
        ring.index(place).store(value.to(ring.dtype))
        fence_async_shared()
        box_store(box, [batch, head, first, 0], box_ring.index(place))


@gluon.jit
def clear(out, base, first, length, D: gl.constexpr, O: gl.constexpr):
    r = gl.arange(0, 64, layout=gl.SliceLayout(1, O))
    c = gl.arange(0, D, layout=gl.SliceLayout(0, O))
    gl.store(out + (base + first) * D + (r[:, None] * D + c[None, :]), gl.zeros([64, D], out.dtype.element_ty, O),
             mask=(first + r < length)[:, None] & (c >= 0)[None, :])  # fmt: skip


@gluon.jit
def raise_flag(flag, value, first, length, O: gl.constexpr):
    """Set `flag` if a value of a row before `length` is not finite: 0 times it is NaN."""
    R: gl.constexpr = gl.SliceLayout(1, O)
    bad = (gl.sum(value * 0.0, 1) != 0) & (first + gl.arange(0, 64, layout=R) < length)
    gl.store(flag + gl.zeros([64], gl.int32, R), gl.full([64], 1, gl.int32, R), mask=bad)
