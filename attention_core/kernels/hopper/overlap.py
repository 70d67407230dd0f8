"""Let a program begin while the one before it ends: what CUDA calls programmatic dependent launch.

After `gdc_launch_dependents` in all of its instances a program lets the next one of its stream have the multiprocessors
that become free, if that was launched with `overlapping()`. The next one sets up its barriers and then, at `gdc_wait`,
waits until all of the one before is done and can be seen. So each program launched like this waits at its top, before
it reads or writes memory and before it may return: then the one after it may rely on all that came earlier. A launch
took 1 to 3 microseconds more without (measured: notes/hopper.md).
"""

from __future__ import annotations

from triton import knobs


def overlapping() -> dict[str, bool]:
    """Options of a launch whose program waits; none in Triton's interpreter, which runs one after the other."""
    return {} if knobs.runtime.interpret else {"OVERLAPPED": True, "launch_pdl": True}
