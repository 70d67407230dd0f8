"""What ptxas made of a Hopper program: three faults of registers that no message of the compiler tells of.

- unset: a register is read that on some way from the entry nobody has written, for more than to save or copy it.
- descriptor: the place and shape of a product's operand in shared memory, in two uniform registers, are on some way not
  what a descriptor can be. ptxas 12.8 shares the parts of q's descriptors between two loops and may compute them on
  the way into the first only; where that loop is passed by, the second multiplies whatever the registers point to.
- in flight: a register of a product is touched before a wait covers it, or one that it reads is overwritten.

It reads the listing of nvdisasm, walks all ways through it and believes every branch, so it may only err towards a
fault. A wrong register that holds another descriptor is beyond it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import triton

_MASK = frozenset((0x3FFF, 0x7FFF))  # of an address in units of 16 bytes
UNIFORM = 256  # bit of UR0 in a set of registers; below stand R0..R254
ALL = (1 << 512) - 1
ENDS = re.compile(r"U?BRA|BRX|EXIT|RET|CALL")
WITHOUT_RESULT = re.compile(
    r"ST|RED(?!UX)|U?BAR|B[RS]|U?BRA|EXIT|RET|CALL|W|DEPBAR|MEMBAR|FENCE|UTMA|UBLK|NOP|PMTRIG|CCTL|ERRBAR|USETMAXREG|YIELD"
    r"|NANOSLEEP|.*SETP|U?PLOP3|FCHK|SYNCS\.(?:PHASECHK|ARRIVE)|R2P"
)
PREDICATE = re.compile(r"!?U?P[\dT]")
REGISTER = re.compile(r"\b(U?)R(\d+)\b(\.64)?")
COPY = re.compile(r"(U?MOV|R2UR) U?R\d+, U?R\d+|IMAD\.(MOV\.)?U32 R\d+, RZ, RZ, U?R\d+")
Groups = tuple[tuple[int, ...], ...]  # products in flight by their place in the code, the last group not yet committed
Value = int | str | tuple[str, int] | None  # a constant, a PLACE and a constant, the two swapped half-way, unknown
PLACE = "place"  # a shared address in units of 16 bytes, to which constants may have been added
STACK = 1 << 1  # R1 is its pointer


@dataclass(frozen=True)
class Instruction:
    """One line of the listing. Sets of registers are numbers, a bit each."""

    text: str
    operation: str
    operands: tuple[str, ...]
    sometimes: bool  # it has a predicate
    reads: int = 0
    writes: int = 0
    sums: int = 0  # of a product
    left: int = 0  # registers of a product's left operand
    descriptors: tuple[int, ...] = ()  # numbers of the first of two uniform registers
    commits: bool = False
    waits: int | None = None  # groups that may stay in flight


@dataclass(frozen=True)
class Listing:
    code: tuple[Instruction, ...]
    labels: dict[str, int]

    @cached_property
    def blocks(self) -> dict[int, tuple[int, list[int]]]:
        """First instruction of each block: one past its last, and the blocks that may come next."""
        after = (k + 1 for k, one in enumerate(self.code) if ENDS.match(one.operation))
        starts = sorted({0, *self.labels.values(), *after} - {len(self.code)})
        made = {}
        for start, end in zip(starts, [*starts[1:], len(self.code)], strict=True):
            last = self.code[end - 1]
            leaves = ENDS.match(last.operation)
            to = [self.labels[name] for name in re.findall(r"\.L_x_\d+", last.text)] if leaves else []
            # BRA may have a condition among its operands, too.
            passes = not leaves or last.sometimes or last.operation.startswith("CALL") or len(last.operands) > 1
            made[start] = end, [b for b in (*to, *([end] if passes else [])) if b < len(self.code)]
        return made


def faults(cubin: bytes) -> list[str]:
    """What is wrong with the registers of a compiled program, a line each."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.nvdisasm.path, "--print-code", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return faults_of(text)


def faults_of(text: str) -> list[str]:
    """The same, of a listing."""
    listing = read(text)
    return [*unset(listing), *wrong_descriptors(listing), *touched_in_flight(listing)]


def read(text: str) -> Listing:
    """Instructions and labels of a listing of nvdisasm."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif found := re.match(r"\s*\{?\s*/\*[0-9a-f]+\*/\s+([^;]+?)\s*;", line):
            code.append(_instruction(re.sub(r"\s+", " ", found[1])))
    if not code:
        raise ValueError("expected a listing of nvdisasm, got no instruction; give it a cubin of one program")
    return Listing(tuple(code), labels)


def _set(uniform: str, number: str | int, count: int = 1) -> int:
    """`count` registers from that number on; none for the zero registers."""
    number = int(number)
    return 0 if number == (63 if uniform else 255) else ((1 << count) - 1) << (number + (UNIFORM if uniform else 0))


def _names(registers: int) -> list[str]:
    return [f"UR{n - UNIFORM}" if n >= UNIFORM else f"R{n}" for n in range(512) if registers >> n & 1]


def _instruction(text: str) -> Instruction:
    predicate = re.match(r"@!?U?P\w+ ", text)
    body = text[predicate.end() :] if predicate else text
    operation, _, rest = re.sub(r"\(\*.*", "", body).partition(" ")
    operands = tuple(part.strip() for part in re.split(r",(?![^\[]*\])", rest)) if rest.strip() else ()
    sometimes = predicate is not None
    if operation.startswith("HGMMA"):
        return _product(text, operation, operands, sometimes)
    if operation.startswith("WARPGROUP.DEPBAR"):
        return Instruction(text, operation, operands, sometimes, waits=int(operands[1], 16))
    pairs = re.search(r"\.64|WIDE|^D[A-Z]|F64", operation) and not re.match(r"SHF|SYNCS", operation)
    width = 4 if re.search(r"\.128|LDSM.*\.4", operation) else 2 if pairs or re.search(r"LDSM.*\.2", operation) else 1
    writes, sources = 0, operands
    if not WITHOUT_RESULT.match(operation):
        first = next((k for k, one in enumerate(operands) if not PREDICATE.fullmatch(one)), None)
        if first is not None and (found := re.fullmatch(r"(U?)R(\d+)", operands[first])):
            writes = _set(*found.groups(), 2 if operation == "CS2R" else width)
            sources = operands[:first] + operands[first + 1 :]
    reads = 0
    for place, source in enumerate(sources):
        for found in REGISTER.finditer(source):
            wide = found[3] or (found[1] and source.startswith("desc["))  # an address
            wide = wide or operation.startswith(("UIADD3.64", "D")) or ("WIDE" in operation and place == 2)
            stored = operation.startswith("ST") and "[" not in source
            reads |= _set(found[1], found[2], width if stored else 2 if wide else 1)
    if operation == "PRMT" or re.fullmatch(r"LOP3\.LUT (R\d+), \1, 0x[0-9a-f]{8}, RZ, 0xc0, !PT", body):
        reads &= ~writes  # half of a register or a bit (a saved predicate) is replaced, whatever else it holds
    return Instruction(text, operation, operands, sometimes, reads, writes)


def _product(text: str, operation: str, operands: tuple[str, ...], sometimes: bool) -> Instruction:
    columns = int(re.search(r"\.64x(\d+)x", operation)[1])
    sums = _set("", operands[0][1:], columns // 2)
    left, descriptors = 0, []
    for operand in operands[1:3]:
        if found := re.match(r"gdesc\[UR(\d+)\]", operand):  # four registers: left and right, the left may be unused
            first = int(found[1])
            descriptors = [first + 2] if left else [first, first + 2]
        elif not descriptors:
            left = _set("", REGISTER.match(operand)[2], 4)
    reads = left | sum(_set("U", n, 2) for n in descriptors)
    reads |= 0 if "RZ" in operands else sums
    return Instruction(
        text, operation, operands, sometimes, reads, sums, sums, left, tuple(descriptors), commits="gsb0" in operands
    )


def unset(listing: Listing) -> Iterator[str]:
    """Reads of registers that are not written on every way to them."""
    known = {0: 0}
    work = [0]
    while work:
        start = work.pop()
        end, following = listing.blocks[start]
        written = known[start]
        for one in listing.code[start:end]:
            written = _after(one, written)
        for to in following:
            if known.get(to, ALL) & written != known.get(to):
                known[to] = known.get(to, ALL) & written
                work.append(to)
    for start, written in sorted(known.items()):
        for one in listing.code[start : listing.blocks[start][0]]:
            missing = one.reads & ~written
            if missing and not one.operation.startswith("STL") and not _copies(one):  # it may be saved unset
                yield f"unset {', '.join(_names(missing))}: {one.text}"
            written = _after(one, written)


def _copies(one: Instruction) -> bool:
    """Whether it copies a register, which may be unset: the copy is so, too."""
    return not one.sometimes and COPY.fullmatch(one.text) is not None


def _after(one: Instruction, written: int) -> int:
    """The registers that are written once this instruction is done."""
    return written & ~one.writes if one.reads & ~written and _copies(one) else written | one.writes


def touched_in_flight(listing: Listing) -> Iterator[str]:
    """Registers of products that others touch before a wait covers the product."""
    found: set[tuple[str, str]] = set()
    known: dict[int, set[Groups]] = {0: {((),)}}
    work: list[tuple[int, Groups]] = [(0, ((),))]
    while work:
        start, groups = work.pop()
        end, following = listing.blocks[start]
        flying = [listing.code[k] for group in groups for k in group]
        for k in range(start, end):
            one = listing.code[k]
            if one.waits is not None:
                done = groups[:-1]
                groups = (*(done[len(done) - one.waits :] if one.waits else ()), groups[-1])
                flying = [listing.code[n] for group in groups for n in group]
                continue
            for product in flying:
                own = one.sums == product.sums  # products of the same sums are worked in their order
                read, written = one.left if own else one.reads | one.writes, one.writes
                if read & product.sums or written & product.left:
                    found.add((one.text, product.text))
            if one.sums:
                groups = (*groups[:-1], tuple(sorted({*groups[-1], k})))
                flying.append(one)
                if one.commits:
                    groups = (*groups[-3:], ())  # more than three in flight are none of ours
        for to in following:
            if groups not in known.setdefault(to, set()):
                known[to].add(groups)
                work.append((to, groups))
    for one, product in sorted(found):
        yield f"in flight: {one}, of the product {product}"


def wrong_descriptors(listing: Listing) -> Iterator[str]:
    """Products whose descriptors are not a place and a constant with a swizzle on every way to them."""
    words = {f"UR{n + half}" for one in listing.code for n in one.descriptors for half in (0, 1)}
    relevant: dict[int, list[str]] = {}  # what an instruction writes that may reach a descriptor
    while True:
        fresh: set[str] = set()
        for k, one in enumerate(listing.code):
            written = _stack(one) if one.operation.startswith("STL") else _names(one.writes)
            if k not in relevant and not one.sums and words.intersection(written):
                relevant[k] = written
                fresh.update(_names(one.reads), _stack(one))
        if not fresh - words:
            break
        words |= fresh
    known: dict[int, dict[str, Value]] = {0: {}}
    work = [0]
    while work:
        start = work.pop(0)
        end, following = listing.blocks[start]
        values = dict(known[start])
        for k in range(start, end):
            if k in relevant:
                _step(listing.code[k], relevant[k], values)
        for to in following:
            before = known.get(to)
            both = values if before is None else {n: v for n, v in before.items() if values.get(n) == v}
            if both != before:
                known[to] = dict(both)
                work.append(to)
    for start, values in sorted(known.items()):
        for k in range(start, listing.blocks[start][0]):
            one = listing.code[k]
            for n in one.descriptors:
                low, high = values.get(f"UR{n}"), values.get(f"UR{n + 1}")
                if low != PLACE or not isinstance(high, int) or not high >> 30:
                    yield f"descriptor UR{n}: {one.text}"
            if k in relevant:
                _step(one, relevant[k], values)


def _stack(one: Instruction) -> list[str]:
    """Names of the words of stack that it loads or stores."""
    if not one.operation.startswith(("STL", "LDL")):
        return []
    address = re.fullmatch(r"\[R1(?:\+(-?0x[0-9a-f]+))?\]", one.operands[one.operation.startswith("LDL")])
    if not address:
        return []
    width = 4 if ".128" in one.operation else 2 if ".64" in one.operation else 1
    return [f"stack+{int(address[1] or '0', 16) + 4 * n}" for n in range(width)]


def _step(one: Instruction, written: list[str], values: dict[str, Value]) -> None:
    """Follow one instruction. A value that isn't held is unknown."""

    def value(operand: str) -> Value:
        operand = operand.replace(".reuse", "")
        if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", operand):
            return int(operand, 0) & 0xFFFFFFFF
        return 0 if operand in ("RZ", "URZ") else values.get(operand)

    operation, (first, *rest) = one.operation, (o for o in one.operands if not PREDICATE.fullmatch(o))
    made: dict[str, Value] = dict.fromkeys(written)
    if operation.startswith("STL"):
        made.update(zip(written, (values.get(name) for name in _names(one.reads & ~STACK)), strict=False))
    elif operation.startswith("LDL"):
        made.update(zip(written, (values.get(name) for name in _stack(one)), strict=False))
    elif operation in ("UMOV", "MOV", "R2UR") or (operation.startswith(("IMAD.MOV", "IMAD.U32")) and rest[0] == "RZ"):
        made[first] = value(rest[-1])
    elif operation.startswith("CS2R") and rest[0] == "SRZ":  # zeros, into two registers at once
        made.update(dict.fromkeys(written, 0))
    elif operation in ("USGXT.U32", "SGXT.U32") and rest[1] in ("0xe", "0xf"):
        made[first] = PLACE
    elif operation == "UIADD3.64":
        above = [f"UR{int(o[2:]) + 1}" if re.fullmatch(r"UR\d+", o) else "URZ" for o in rest]
        made[first], made[f"UR{int(first[2:]) + 1}"] = _sum([*map(value, rest)]), _sum([*map(value, above)])
    elif operation in ("UIADD3", "IADD3", "VIADD", "UIADD3.X", "IADD3.X"):
        made[first] = _sum([*map(value, rest)])  # a carry never reaches the upper word
    elif operation in ("IMAD.IADD", "IMAD.X") and rest[1] == "0x1":
        made[first] = _sum([value(rest[0]), value(rest[2])])
    elif operation == "IMAD.X" and "RZ" in rest[:2]:
        made[first] = value(rest[2])
    elif operation in ("ULOP3.LUT", "LOP3.LUT"):
        made[first] = _logic(value(rest[0]), value(rest[1]), rest[2], rest[3])
    elif operation in ("USEL", "SEL") and value(rest[0]) == value(rest[1]):
        made[first] = value(rest[0])
    for name, new in made.items():
        if new is None or (one.sometimes and values.get(name) != new):
            values.pop(name, None)
        else:
            values[name] = new


def _sum(parts: list[Value]) -> Value:
    if any(part is None or isinstance(part, tuple) for part in parts) or parts.count(PLACE) > 1:
        return None
    return PLACE if PLACE in parts else sum(part for part in parts if isinstance(part, int)) & 0xFFFFFFFF


def _logic(a: Value, b: Value, third: str, table: str) -> Value:
    if third not in ("RZ", "URZ") or a is None or b is None:
        return PLACE if table == "0xc0" and _MASK.intersection({a, b}) else None
    if table == "0xc0":
        return PLACE if _MASK.intersection({a, b}) else a & b if isinstance(a, int) and isinstance(b, int) else None
    if table not in ("0xfc", "0x3c"):
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a | b if table == "0xfc" else a ^ b
    if table == "0xfc":
        return PLACE if PLACE in (a, b) and not isinstance(a, tuple) and not isinstance(b, tuple) else None
    # Three xors swap two registers: a place and a constant, one of them and both, the other.
    for one, other in ((a, b), (b, a)):
        if one == PLACE and isinstance(other, int):
            return "swapped", other
        if isinstance(one, tuple):
            return PLACE if other == one[1] else one[1] if other == PLACE else None
    return None
