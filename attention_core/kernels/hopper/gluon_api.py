"""The few names of Gluon that differ between the Triton versions served (3.6 and 3.9)."""

from triton._C.libtriton import ir
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import tma

if hasattr(tma, "async_load"):  # 3.9 renamed both copies
    box_load, box_store = tma.async_load, tma.async_store
else:
    box_load, box_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global

thread_barrier = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier


@builtin
def box_add(box, coord, source, _semantic=None):
    """Add shared memory to a box of global memory, in no fixed order; 3.6 has the operation but no name for it."""
    place = _semantic._convert_to_ir_values(coord, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, box.handle, place, source.handle)


@builtin
def view(memory, shape, layout, dtype=None, _semantic=None):
    """The same shared memory under another shape, layout and dtype (by default its own)."""
    shape, dtype = [int(n) for n in shape], memory.dtype if dtype is None else getattr(dtype, "value", dtype)
    return _semantic.memdesc_reinterpret(memory, dtype, shape, getattr(layout, "value", layout))
