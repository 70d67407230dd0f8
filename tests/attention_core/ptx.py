"""Programs compiled for sm_90 and executed without a GPU: their PTX, a statement at a time for all threads together.

For short programs without branches, barriers or floating point: any other statement is an error, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KINDS: dict[str, np.dtype] = {"pred": np.dtype(bool)} | {
    f"{letter}{bits}": np.dtype(f"{'i' if letter == 's' else 'u'}{bits // 8}")
    for letter in "bus"
    for bits in (8, 16, 32, 64)
}
PAIR = "s16x2"  # two numbers in one register: known of `add` only
APART = 40  # the bits of an address within an array


class Memory:
    """Arrays as global memory. Array n begins at address (n + 1) << 40, and nothing else can be read or written."""

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        assert all(x.flags.c_contiguous for x in arrays)
        self.bytes = [x.reshape(-1).view(np.uint8) for x in arrays]
        self.addresses = [n + 1 << APART for n in range(len(arrays))]

    def elements(self, address: NDArray, kind: np.dtype, count: int) -> tuple[NDArray, NDArray]:
        """The array that some threads reach, as elements, and the index of each thread's first of `count`."""
        numbers, within, size = address >> APART, address & (1 << APART) - 1, kind.itemsize * count
        number = int(numbers[0]) - 1
        known = 0 <= number < len(self.bytes) and (numbers == numbers[0]).all()
        if not known or (outside := within + size > len(self.bytes[number])).any():
            first = address[outside][0] if known else address[0]
            raise AssertionError(f"{size} bytes at {first:#x} are outside the arrays")
        if (within % size).any():
            raise AssertionError(f"{size} bytes of array {number} are not at a multiple of {size}")
        whole = len(self.bytes[number]) // kind.itemsize * kind.itemsize
        return self.bytes[number][:whole].view(kind), within // kind.itemsize


def _wider(kind: np.dtype) -> np.dtype:
    return np.dtype(f"{kind.kind}{kind.itemsize * 2}")


def _wide(x: NDArray) -> NDArray:
    return x.astype(_wider(x.dtype))


def _shift(x: NDArray, by: NDArray, operation: np.ufunc) -> NDArray:
    """Shifted by its width or more, a number is 0 or -1."""
    return operation(x, np.minimum(by, x.dtype.itemsize * 8).astype(x.dtype))


OPERATIONS: dict[str, Callable[..., NDArray]] = {
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": lambda a, by: _shift(a, by, np.left_shift),
    "shr": lambda a, by: _shift(a, by, np.right_shift),
    "bfe": lambda a, begin, count: _shift(a, begin, np.right_shift) & _shift(a * 0 + 1, count, np.left_shift) - 1,
    "add": np.add,
    "add.s16x2": lambda a, b: ((a >> 16) + (b >> 16) << 16) | (a + b & 0xFFFF),
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "mul.lo": np.multiply,
    "mul.hi": lambda a, b: _wide(a) * _wide(b) >> a.dtype.itemsize * 8,
    "mul.wide": lambda a, b: _wide(a) * _wide(b),
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: _wide(a) * _wide(b) + c,
    "selp": lambda a, b, first: np.where(first, a, b),
    "setp.eq": np.equal,
    "setp.ne": np.not_equal,
    "setp.lt": np.less,
    "setp.le": np.less_equal,
    "setp.gt": np.greater,
    "setp.ge": np.greater_equal,
}


@dataclass(frozen=True, eq=False)
class Statement:
    """One instruction; `guard` is the predicate under which it happens, with ! before it where negated, or empty.

    A register or an operand in braces is several that share a long one, low first.
    """

    text: str
    guard: str
    name: str  # without the kind: an operation, ld.param, ld.global or st.global
    kind: np.dtype  # of what is computed or moved
    target: str
    operands: tuple[str, ...]
    kinds: tuple[np.dtype, ...]


def _parsed(text: str) -> Statement:
    guard, name, rest = re.fullmatch(r"(?:@(!?%p\d+)\s+)?(\S+)\s+(.+)", text).groups("")
    target, *operands = (x.strip() for x in re.split(r",\s*(?![^{]*\})", rest))
    base, _, last = name.rpartition(".")
    if moved := re.fullmatch(r"(ld\.param)|((?:ld|st)\.global)(?:\.v[24])?", base):
        kind = KINDS[last]
        return Statement(text, guard, moved[1] or moved[2], kind, target, tuple(operands), (kind,))
    if last == PAIR:
        base, last = name, "u32"
    kind, to = KINDS[last], KINDS[last]
    if base.startswith("cvt."):
        base, to = "cvt", KINDS[base.removeprefix("cvt.")]
    kinds = [kind] * len(operands)
    if base in ("shl", "shr", "bfe"):
        kinds[1:] = [KINDS["u32"]] * (len(operands) - 1)
    elif base.startswith("setp"):
        to = KINDS["pred"]
    elif base == "selp":
        kinds[2] = KINDS["pred"]
    elif base.endswith(".wide"):
        to = _wider(kind)
        kinds[2:] = [to] * (len(operands) - 2)
    if base not in OPERATIONS:
        raise KeyError(base)
    return Statement(text, guard, base, to, target, tuple(operands), tuple(kinds))


class Program:
    """The one function of a PTX text.

    >>> program = Program(
    ...     ".entry f(.param .u64 f_param_0) { .reg .b32 %r<3>; .reg .b64 %rd<4>; ld.param.b64 %rd1, [f_param_0];"
    ...     "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; shl.b32 %r2, 7, %r1;"
    ...     "st.global.b32 [ %rd3 + 0 ], { %r2 }; ret; }"
    ... )
    >>> memory = Memory([np.zeros(4, np.int32)])
    >>> program.run(memory, memory.addresses, threads=3)
    >>> memory.bytes[0].view(np.int32).tolist()
    [7, 14, 28, 0]
    >>> try:
    ...     program.run(memory, memory.addresses, threads=5)
    ... except AssertionError as error:
    ...     print(error)
    4 bytes at 0x10000000010 are outside the arrays
    """

    def __init__(self, ptx: str) -> None:
        body = ptx[ptx.index("{", ptx.index(".entry")) + 1 : ptx.rindex("ret;")]
        lines = [re.sub(r"//.*", "", line).strip().removeprefix("{").removesuffix("}") for line in body.splitlines()]
        found = (x.strip() for line in lines for x in line.split(";") if not line.startswith(("$", ".loc")))
        self.registers: dict[str, np.dtype] = {}  # kinds by the name without its number
        self.statements: list[Statement] = []
        for text in filter(None, found):
            if declared := re.fullmatch(r"\.reg \.(\w+)\s+(%?\w+?)(<\d+>)?", text):
                self.registers[declared[2]] = KINDS[declared[1]]
            else:
                try:
                    self.statements.append(_parsed(text))
                except (AttributeError, KeyError) as error:
                    raise ValueError(f"no meaning is known of {text!r}") from error

    def run(self, memory: Memory, arguments: Sequence[int | NDArray], threads: int) -> None:
        """Execute it for so many threads. Arguments are numbers, or arrays [cases, 1] for several runs in one."""
        state = _State(self.registers, memory, [np.atleast_1d(np.asarray(x)) for x in arguments])
        state.values["%tid.x"] = np.arange(threads, dtype=np.uint32)
        for statement in self.statements:
            try:
                state.execute(statement)
            except Exception as error:
                error.add_note(f"at: {statement.text}")
                raise


class _State:
    """The registers of all threads. What is read before it is written is an error."""

    def __init__(self, registers: dict[str, np.dtype], memory: Memory, arguments: list[NDArray]) -> None:
        self.registers, self.memory, self.arguments = registers, memory, arguments
        self.values: dict[str, NDArray] = {}

    def execute(self, statement: Statement) -> None:
        on = None
        if statement.guard:
            on = self.values[statement.guard.lstrip("!")] ^ statement.guard.startswith("!")
        if statement.name.endswith(".global"):
            self.move(statement, on)
        elif statement.name == "ld.param":
            number = int(re.fullmatch(r"\[\w+_param_(\d+)\]", statement.operands[0])[1])
            self.write(statement.target, self.arguments[number].astype(statement.kind), on)
        else:
            values = map(self.value, statement.operands, statement.kinds)
            found = OPERATIONS[statement.name](*values).astype(statement.kind, copy=False)
            self.write(statement.target, found, on)

    def value(self, operand: str, kind: np.dtype) -> NDArray:
        known = self.values.get(operand)
        if known is not None:
            return known.astype(kind, copy=False)
        if operand.startswith("{"):
            names = _within(operand)
            bits = kind.itemsize * 8 // len(names)
            parts = [self.value(x, np.dtype(f"u{bits // 8}")) for x in names]
            return sum(x.astype(kind) << n * bits for n, x in enumerate(parts))
        return np.array([int(operand, 0) & 2**64 - 1], np.uint64).astype(kind)

    def write(self, target: str, found: NDArray, on: NDArray | None) -> None:
        if target.startswith("{"):
            names = _within(target)
            bits = found.dtype.itemsize * 8 // len(names)
            for n, name in enumerate(names):
                self.write(name, found >> n * bits & 2**bits - 1, on)
        elif target != "_":
            found = found.astype(self.registers[target.rstrip("0123456789")], copy=False)
            self.values[target] = found if on is None else np.where(on, found, self.values[target])

    def move(self, statement: Statement, on: NDArray | None) -> None:
        """Load or store each thread's elements, those of a vector next to each other."""
        loads, kind = statement.name == "ld.global", statement.kind
        (place,), names = statement.operands, statement.target
        if not loads:
            place, names = names, place
        names = _within(names)
        register, offset = re.fullmatch(r"\[\s*(%rd\d+)\s*(?:\+\s*(-?\d+))?\s*\]", place).groups("0")
        address = self.values[register] + np.array([int(offset) & 2**64 - 1], np.uint64)
        values = [] if loads else [self.value(x, kind) for x in names]
        address, active, *values = np.broadcast_arrays(address, True if on is None else on, *values)
        if not active.any():
            return
        data, index = self.memory.elements(address[active], kind, len(names))
        for n, name in enumerate(names):
            if loads:
                found = np.zeros(address.shape, kind)
                found[active] = data[index + n]
                self.write(name, found, on)
            else:
                data[index + n] = values[n][active]


def _within(braces: str) -> list[str]:
    return [x.strip() for x in braces.strip("{ }").split(",")]
