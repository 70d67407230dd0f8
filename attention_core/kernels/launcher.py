"""Launch Triton programs at a few microseconds a call: a kind of call is recorded once and repeated.

`program[grid](...)` looks at every argument at every call to find the compiled program that fits. What it finds
follows from the kind of a call: dtypes, shapes, strides, alignments and numbers. So the first call of a kind goes
this way and keeps the compiled programs with their arguments; later ones fill in the pointers that have changed and
hand them to the compiled programs themselves, in the order in which Triton does. Numbers for pointers also spare
the driver's question, at each of them, what memory it is: inputs have been checked before they come here.

Triton's launch hooks are honoured, by the ordinary way. Its other settings (debug, instrumentation) are those of
the first call of a kind. So is the ordinary way taken in Triton's interpreter and for Tritons not named below.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

TRITONS = ("3.6", "3.9")  # whose way of handing over arguments is compared with ours in the tests
KINDS = 64  # of calls that one object keeps; more are forgotten together


def launched(
    owner: object,
    kind: Hashable,
    given: tuple[Tensor, ...],
    made: tuple[Tensor, ...],
    launch_all: Callable[..., None],
) -> None:
    """Launch what `launch_all(launcher, *given, *made)` launches, repeating it where such a call was kept.

    `launch_all` calls `launcher(program, grid, *args, **constants)` for each program and does nothing else to a
    tensor. `given` are tensors of any layout. `made` are fresh ones, whose layouts follow from `given` and `kind`,
    and so does all else that launch_all passes: its numbers and, unchanged, any further tensors (they are held).
    Launches are kept with `owner`, whose tensors these are, until it goes; copies and pickles of it have none.
    """
    first = given[0]
    if first.is_cuda and first.get_device() != torch.cuda.current_device():
        with torch.cuda.device_of(first):
            return launched(owner, kind, given, made, launch_all)
    kept = vars(owner).get("_launches")
    if kept is None:
        kept = vars(owner).setdefault("_launches", _Kept())
    pointers = [x.data_ptr() for x in given]
    key = (
        kind,
        *[(x.dtype, x.get_device(), x.shape, x.stride(), at % 16) for x, at in zip(given, pointers, strict=True)],
    )
    launches = kept.get(key)
    tensors = given + made
    if launches is not None and _nobody_hooks():
        pointers += [x.data_ptr() for x in made]
        active: Any = driver.active  # its base class does not name what every driver has
        stream = active.get_current_stream(active.get_current_device())
        for launch in launches:
            launch(stream, tensors, pointers)
        return None
    launcher = Launcher(tensors)
    launch_all(launcher, *launcher.tensors)
    if launcher.launches is not None:
        if len(kept) >= KINDS:
            kept.clear()
        kept[key] = tuple(launcher.launches)
    return None


class Launcher:
    """Launches programs the ordinary way and records how to do it again; `launches` is None where that can't be."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        # Each an object of its own: one tensor given twice now may be two tensors in the next call.
        self.tensors = tuple(x.detach() for x in tensors)
        self.launches: list[_Launch] | None = [] if _served() else None

    def __call__(self, program: Any, grid: int, *args: Any, **constants: Any) -> None:
        """Launch `grid` instances of a program."""
        compiled = program[(grid,)](*args, **constants)
        plain = isinstance(program, JITFunction) and not program.pre_run_hooks
        if self.launches is None or not plain or not hasattr(compiled, "packed_metadata"):
            self.launches = None  # one that can't be repeated spoils all: they are launched together
            return
        options = {name: value for name, value in constants.items() if name in program.signature.parameters}
        bound = program.signature.bind(*args, **options)
        bound.apply_defaults()
        self.launches.append(_Launch(compiled, grid, list(bound.arguments.values()), self.tensors))


def scratch(count: int, device: torch.device) -> Tensor:
    """float32 [count], uninitialised; what holds nothing is one tensor for all."""
    return torch.empty(count, dtype=torch.float32, device=device) if count else _nothing(device)


@cache
def _nothing(device: torch.device) -> Tensor:
    return torch.empty(0, dtype=torch.float32, device=device)


class _Launch:
    """One compiled program, its grid and its arguments, with places for the tensors of a call."""

    def __init__(self, compiled: Any, grid: int, args: list[Any], tensors: tuple[Tensor, ...]) -> None:
        slots = {id(x): n for n, x in enumerate(tensors)}
        self.compiled, self.grid = compiled, grid  # the compiled program is unloaded when nobody holds it
        self.run, self.function, self.packed = compiled.run, compiled.function, compiled.packed_metadata
        self.held = [x for x in args if isinstance(x, Tensor) and id(x) not in slots]
        self.args: list[Any] = []
        self.pointers: list[tuple[int, int]] = []  # (argument, tensor)
        self.boxes: list[tuple[int, int, list[int], list[int]]] = []  # (argument, tensor, shape, strides)
        for at, x in enumerate(args):
            base = getattr(x, "base", None)
            if isinstance(x, Tensor):
                if id(x) in slots:
                    self.pointers.append((at, slots[id(x)]))
                self.args.append(None if id(x) in slots else x.data_ptr())
            elif isinstance(base, Tensor) and id(base) in slots:
                self.boxes.append((at, slots[id(base)], list(x.shape), list(x.strides)))
                self.args.append(None)
            else:
                self.args.append(x)

    def __call__(self, stream: int, tensors: tuple[Tensor, ...], pointers: list[int]) -> None:
        args = self.args.copy()
        for at, n in self.pointers:
            args[at] = pointers[n]
        for at, n, shape, strides in self.boxes:
            args[at] = _Box(tensors[n], shape, strides)
        self.run(self.grid, 1, 1, stream, self.function, self.packed, None, None, None, *args)


class _Box:
    """What Triton reads of a tensor descriptor at a launch, without the checks that the first call passed."""

    __slots__ = ("base", "shape", "strides")
    padding, round_f32_to_tf32 = "zero", False

    def __init__(self, base: Tensor, shape: list[int], strides: list[int]) -> None:
        self.base, self.shape, self.strides = base, shape, strides


class _Kept(dict):
    """Launches by kind; a copy or pickle has none, as compiled programs and pointers stay in their process."""

    def __reduce__(self) -> tuple[type, tuple]:
        return _Kept, ()


@cache
def _served() -> bool:
    return ".".join(triton.__version__.split(".")[:2]) in TRITONS


def _nobody_hooks() -> bool:
    """Whether nobody wants to be told of launches."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return (enter is None or getattr(enter, "calls", None) == []) and (
        leave is None or getattr(leave, "calls", None) == []
    )
