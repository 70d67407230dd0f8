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
            raise AssertionError(f"{size} bytes at {first:#x}, array {number}, are outside the arrays")
        if (within % size).any():
            raise AssertionError(f"{size} bytes of array {number} are read or written at an address not a multiple")
        whole = len(self.bytes[number]) // kind.itemsize * kind.itemsize
        return self.bytes[number][:whole].view(kind), within // kind.itemsize


def _wide(x: NDArray) -> NDArray:
    return x.astype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")


def _shift(x: NDArray, by: NDArray, operation: np.ufunc) -> NDArray:
    """Shifted by its width or more, a number is 0 or -1."""
    return operation(x, np.minimum(by, x.dtype.itemsize * 8).astype(x.dtype))


def _halves(a: NDArray, b: NDArray) -> NDArray:
    return ((a >> 16) + (b >> 16) << 16) | (a + b & 0xFFFF)


# By name without its last part, the kind of the operands.
OPERATIONS: dict[str, Callable[..., NDArray]] = {
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": lambda a, by: _shift(a, by, np.left_shift),
    "shr": lambda a, by: _shift(a, by, np.right_shift),
    "bfe": lambda a, begin, count: a >> begin & (1 << count) - 1,
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "mul.lo": np.multiply,
    "mul.hi": lambda a, b: _wide(a) * _wide(b) >> a.dtype.itemsize * 8,
    "mul.wide": lambda a, b: _wide(a) * _wide(b),
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: _wide(a) * _wide(b) + c,
    "selp": lambda a, b, first: np.where(first, a, b),
    **{f"setp.{name}": getattr(np, name if name.endswith("equal") else full) for name, full in (
        ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"),
        ("ge", "greater_equal"))},
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One instruction; `guard` is the predicate under which it happens, with ! before it where negated, or empty."""

    guard: str
    name: str
    operands: tuple[str, ...]


class Program:
    """The one function of a PTX text."""

    def __init__(self, ptx: str) -> None:
        body = ptx[ptx.index("{", ptx.index(".entry")) + 1 : ptx.rindex("ret;")]
        lines = [re.sub(r"//.*", "", line).strip().removeprefix("{").removesuffix("}") for line in body.splitlines()]
        found = (x.strip() for line in lines for x in line.split(";") if not line.startswith(("$", ".loc")))
        self.registers: dict[str, np.dtype] = {}  # by the name without its number
        self.statements: list[Statement] = []
        for text in filter(None, found):
            if declared := re.fullmatch(r"\.reg \.(\w+)\s+(%?\w+?)(<\d+>)?", text):
                self.registers[declared[2]] = KINDS[declared[1]]
                continue
            guard, name, rest = re.fullmatch(r"(?:@(!?%p\d+)\s+)?(\S+)\s+(.+)", text).groups()
            operands = (x.strip() for x in re.split(r",\s*(?![^{]*\})", rest))
            self.statements.append(Statement(guard or "", name, tuple(operands)))

    def run(self, memory: Memory, arguments: Sequence[int | NDArray], threads: int) -> None:
        """Execute it for so many threads. Arguments are numbers, or arrays [cases, 1] for several runs in one."""
        state = _State(self.registers, memory, arguments)
        state.values["%tid.x"] = np.arange(threads, dtype=np.uint32)
        for statement in self.statements:
            try:
                state.execute(statement)
            except Exception as error:
                error.add_note(f"at {statement}")
                raise


@dataclass
class _State:
    registers: dict[str, np.dtype]
    memory: Memory
    arguments: Sequence[int | NDArray]

    def __post_init__(self) -> None:
        self.values: dict[str, NDArray] = {}

    def kind(self, register: str) -> np.dtype:
        return self.registers[re.match(r"%?[a-z]+", register)[0]]

    def value(self, operand: str, kind: np.dtype) -> NDArray:
        if operand.startswith("{"):  # the parts of a long register, low first
            parts = operand.strip("{ }").split(",")
            values = [self.value(x.strip(), np.dtype(f"u{kind.itemsize // len(parts)}")) for x in parts]
            bits = kind.itemsize * 8 // len(parts)
            return sum(x.astype(kind) << n * bits for n, x in enumerate(values))
        if operand in self.values:
            return self.values[operand].astype(kind, copy=False)
        return np.array([int(operand, 0) & 2**64 - 1], np.uint64).astype(kind)

    def write(self, target: str, found: NDArray, on: NDArray | None) -> None:
        if target == "_":
            return
        found = found.astype(self.kind(target), copy=False)
        self.values[target] = found if on is None else np.where(on, found, self.values[target])

    def execute(self, statement: Statement) -> None:
        guard, (base, _, last) = statement.guard, statement.name.rpartition(".")
        on = None
        if guard:
            on = self.values[guard.lstrip("!")] ^ guard.startswith("!")
        if base.startswith(("ld.global", "st.global")):
            self.move(base, KINDS[last], statement.operands, on)
            return
        target, *operands = statement.operands
        if base == "ld.param":
            argument = self.arguments[int(re.search(r"param_(\d+)", operands[0])[1])]
            self.write(target, np.atleast_1d(np.asarray(argument)).astype(KINDS[last]), on)
            return
        if statement.name == "add.s16x2":
            found = _halves(*(self.value(x, KINDS["u32"]) for x in operands))
        else:
            if base.startswith("cvt."):
                base, _, to = base.partition(".")
            kinds = [KINDS[last]] * len(operands)
            if base in ("shl", "shr", "bfe"):
                kinds[1:] = [KINDS["u32"]] * (len(operands) - 1)
            elif base == "selp":
                kinds[2] = KINDS["pred"]
            elif base == "mad.wide":
                kinds[2] = np.dtype(f"{kinds[0].kind}{kinds[0].itemsize * 2}")
            found = OPERATIONS[base](*map(self.value, operands, kinds))
            if base == "cvt":
                found = found.astype(KINDS[to])
        if target.startswith("{"):
            parts = target.strip("{ }").split(",")
            bits = found.dtype.itemsize * 8 // len(parts)
            for n, part in enumerate(parts):
                self.write(part.strip(), found >> n * bits & 2**bits - 1, on)
        else:
            self.write(target, found, on)

    def move(self, base: str, kind: np.dtype, operands: tuple[str, ...], on: NDArray | None) -> None:
        """Load or store the threads' elements, those of a vector next to each other."""
        loads = base.startswith("ld")
        place, registers = operands if not loads else operands[::-1]
        registers = [x.strip() for x in registers.strip("{ }").split(",")]
        register, offset = re.fullmatch(r"\[\s*(%rd\d+)\s*(?:\+\s*(-?\d+))?\s*\]", place).groups()
        address = self.values[register] + np.array([int(offset or 0) & 2**64 - 1], np.uint64)
        values = [np.zeros((1,), kind) if loads else self.value(x, kind) for x in registers]
        address, active, *values = np.broadcast_arrays(address, True if on is None else on, *values)
        if not active.any():
            return
        data, index = self.memory.elements(address[active], kind, len(registers))
        for n, (name, value) in enumerate(zip(registers, values, strict=True)):
            if loads:
                found = np.zeros(address.shape, kind)
                found[active] = data[index + n]
                self.write(name, found, on)
            else:
                data[index + n] = value[active]
