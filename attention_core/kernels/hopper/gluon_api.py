"""The few names of Gluon that differ between the Triton versions served (3.6 and 3.9)."""

from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import tma

if hasattr(tma, "async_load"):  # 3.9 renamed both copies
    box_load, box_store = tma.async_load, tma.async_store
else:
    box_load, box_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global


@builtin
def view(memory, shape, layout, _semantic=None):
    """The same shared memory under another shape and layout."""
    shape = [int(n) for n in shape]
    return _semantic.memdesc_reinterpret(memory, memory.dtype, shape, getattr(layout, "value", layout))
