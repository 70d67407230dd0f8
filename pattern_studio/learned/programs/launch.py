"""launch: start a Triton program, without Triton's search for the compiled one where such a start was made before.

What `program[grid](...)` searches for follows from dtypes, alignments and numbers, which are compared here in one
look; on a hit the compiled program is started by Triton's own `compiled[grid](...)`, which honours launch hooks.
Pointers are then handed over as numbers, which spares the driver's question what memory each of them is: the tensors
have been checked to be on the device. The interpreter compiles nothing, so each call goes the ordinary way there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

KINDS = 256  # of starts that are kept; more are forgotten together
_compiled: dict[tuple, tuple[Any, list]] = {}


def power_of_two(n: int) -> int:
    """The smallest that is at least n. Triton's own is a program's function and takes microseconds.

    >>> [power_of_two(n) for n in (1, 3, 64)]
    [1, 4, 64]
    """
    return 1 << (n - 1).bit_length()


def launch(
    program: Any, grid: int, tensors: tuple[Tensor, ...], numbers: tuple[int | float, ...], **constants: Any
) -> None:
    """Start `grid` instances of a program whose arguments are tensors, then numbers, then compile-time constants.

    All tensors are on one device; the constants may name launch options (num_warps) too.
    """
    device = tensors[0].get_device()
    if device >= 0 and device != torch.cuda.current_device():  # Triton starts programs on the current device
        with torch.cuda.device(device):
            return launch(program, grid, tensors, numbers, **constants)
    pointers = [x.data_ptr() for x in tensors]
    kinds = tuple((x.dtype, at % 16 == 0) for x, at in zip(tensors, pointers, strict=True))
    key = (program, device, kinds, numbers, *map(type, numbers), *constants.values())  # 1 and 1.0 are equal
    found = _compiled.get(key)
    if found is not None:
        compiled, rest = found
        compiled[(grid, 1, 1)](*pointers, *rest)
        return None
    compiled = program[(grid,)](*tensors, *numbers, **constants)
    if hasattr(compiled, "packed_metadata"):
        if len(_compiled) >= KINDS:
            _compiled.clear()
        given = program.arg_names[len(tensors) + len(numbers) :]
        _compiled[key] = compiled, [*numbers, *(constants[name] for name in given)]
    return None
