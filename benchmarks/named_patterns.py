"""`python -m benchmarks.named_patterns --out FILE`: what named patterns and presets cost on this card.

Every pattern at lengths of use, forward and backward, beside dense attention on the same tensors in the same run: rows
as benchmarks.run has them, with the pattern's hash. Block 128, or the pattern's own where its draws depend on it. What
matters most comes first: the first length and head dim (what the gallery shows) of all named patterns, then of the
presets, then the other head dims, then the other lengths. The file is replaced after each cell and no cell is begun
when the time is up, so a run that is stopped in whatever way keeps what it has; what fails is printed and left out. A
pattern is held to float64 on sampled rows before it is timed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import torch
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from attention_core.kernels.hopper.serves import obstacle
from gallery import matrix
from gallery.named import gallery
from pattern_studio.presets import PRESETS

from .cases import Case, tile_counts

BLOCK = 128
DENSE = {
    "cuda": {"sdpa_cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa_flash": SDPBackend.FLASH_ATTENTION},
    "cpu": {"sdpa_math": SDPBackend.MATH},
}
OURS = {"ours": "triton", "hopper": "hopper"}  # the latter where it serves, and there `auto` takes it
ROWS = 6  # that are held to float64, of the first and the last head
# Triton's errors (registers, shared memory) are none of Python's own kinds.
FAILURES = (ps.StudioError, RuntimeError, AssertionError, MemoryError, triton.TritonError)


@dataclass(frozen=True)
class Subject:
    """A pattern to time, the length that it is drawn for, and the layer that is taken where layers differ."""

    name: str
    pattern: ps.Pattern
    drawn: int
    heads: int
    block: int = BLOCK
    docs: tuple[int, ...] | None = None
    layer: int | None = None
    preset: bool = False

    def lowered(self, length: int) -> ps.BlockLayout:
        """The pattern over a length of use.

        Documents are repeated until they fill the length. A pattern on a grid, which ends where the grid does, is
        lowered for the length that it is drawn for.
        """
        docs = None if self.docs is None else _filled(self.docs, length)
        layout = self._over(length, docs)
        return self._over(self.drawn, self.docs) if layout.empty_rows else layout

    def _over(self, length: int, docs: tuple[int, ...] | None) -> ps.BlockLayout:
        return ps.lower(
            self.pattern, ps.Problem(length, heads=self.heads, docs=docs), block=self.block, layer=self.layer
        )


def subjects(heads: int) -> Iterator[Subject]:
    """Every named pattern, then the presets that are none of them, with so many heads where theirs are alike.

    >>> first = next(subjects(16))
    >>> first.name, first.heads, first.block, first.lowered(8192).problem.q_len
    ('a_shape', 16, 128, 8192)
    """
    seen = set()
    for one in gallery():
        seen.add(one.pattern.hash)
        problem = one.problem
        own = problem.heads if problem.heads > 1 else heads
        block = one.block if "unit=block" in str(one.pattern) else BLOCK
        yield Subject(one.name, one.pattern, problem.q_len, own, block, problem.docs, one.layer)
    for name in PRESETS:
        pattern = ps.parse(matrix.text_of(name))
        if pattern.hash not in seen:
            own = matrix.HEADS if "heads({" in str(pattern) else heads
            layer = matrix.LAYER if "layers({" in str(pattern) else None
            yield Subject(f"{name}, preset", pattern, matrix.TOKENS, own, layer=layer, preset=True)


def _filled(docs: tuple[int, ...], length: int) -> tuple[int, ...]:
    """The documents again and again, the last one cut.

    >>> _filled((3, 2), 9)
    (3, 2, 3, 1)
    """
    out: list[int] = []
    left = length
    for size in cycle(docs):
        if not left:
            return tuple(out)
        out.append(min(size, left))
        left -= out[-1]
    return tuple(out)


class Bench:
    """A run on one device: the rows so far, the clock, and what was timed already."""

    def __init__(self, device: str, dtype: torch.dtype, repeats: int, budget: float, out: Path) -> None:
        self.device, self.dtype, self.repeats, self.out = device, dtype, repeats, out
        self.end = time.monotonic() + budget
        self.rows: list[dict] = []
        self.done: set[tuple] = set()
        self.stamp = {
            "card": torch.cuda.get_device_name() if device == "cuda" else None,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "date": datetime.date.today().isoformat(),
        }

    def run(self, subject: Subject, layout: ps.BlockLayout, dim: int) -> None:
        """Time a pattern and, where it is the first of its shape, dense attention: all of it, and causal."""
        length, heads, block = layout.problem.q_len, subject.heads, (subject.block, subject.block)
        if (subject.name, length, dim) in self.done:
            return  # a pattern on a grid has one length
        self.done.add((subject.name, length, dim))
        shape = {"B": 1, "H": heads, "Hkv": heads, "S": length, "D": dim, "block": list(block)}
        tensors = self._tensors(heads, length, dim)
        for causal in (False, True):
            if (causal, heads, length, dim) in self.done:
                continue
            self.done.add((causal, heads, length, dim))
            what = {"shape": shape, "pattern": "dense"}
            if causal:
                what |= {"pattern": "causal", "hash": ps.causal.hash, "text": "causal"}
            pairs = length**2 * heads // (1 + causal)
            for arm, backend in DENSE[self.device].items():
                self._add(partial(_dense, backend, causal), tensors, what, 1.0, arm, pairs)
        ready = plan(layout, device=self.device)
        density = layout.tiles() / (layout.q_blocks * layout.kv_blocks * heads)
        case = Case(subject.name, length, heads, heads, dim, block, subject.pattern, docs=layout.problem.docs)
        what = {"shape": shape, "pattern": subject.name} | case.identity()
        if subject.layer is not None:
            what["layer"] = subject.layer
        for arm, backend in OURS.items():
            if backend == "hopper" and obstacle(tensors[0], tensors[2], layout.block):
                continue
            attend = partial(block_sparse_attention, plan=ready, backend=backend)
            self._add(attend, tensors, what, density, arm, layout.tile_pairs, layout)

    def _add(
        self,
        attend: Callable[..., Tensor],
        tensors: list[Tensor],
        what: dict,
        density: float,
        arm: str,
        pairs: int,
        layout: ps.BlockLayout | None = None,
    ) -> None:
        """Add the rows of one arm, held to float64 where it runs a layout; its failure leaves the other arms be."""
        try:
            if layout is not None:
                with torch.no_grad():
                    _held_to_float64(layout, tensors, attend(*tensors[:3]))
            times = self._times(attend, tensors)
        except FAILURES as error:
            print(f"{what['pattern']:28} S{what['shape']['S']} D{what['shape']['D']} {arm}: {_first_line(error)}")
            return
        for kind, products in (("forward", 4), ("backward", 10)):
            ms = times[kind]
            tiles = {} if layout is None else {"tiles": tile_counts(layout)}
            row = {"density": density, **tiles, "arm": arm, "pass": kind, "ms": ms}
            rate = products * what["shape"]["D"] * pairs / ms / 1e9
            self.rows.append(self.stamp | what | row | {"tflops": rate})
        part = self.out.with_name(self.out.name + ".part")  # a run that is killed while it writes has the last file
        part.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n")
        part.replace(self.out)
        print(
            f"{what['pattern']:28} S{what['shape']['S']:<6} D{what['shape']['D']:<4} {density:.3f} {arm:10} "
            f"{times['forward']:9.3f} / {times['backward']:.3f} ms",
            flush=True,
        )

    def _times(self, attend: Callable[..., Tensor], tensors: list[Tensor]) -> dict[str, float]:
        q, k, v, d_out = tensors
        found: dict[str, list[float]] = {"forward": [], "backward": []}
        for turn in range(self.repeats + 1):
            for x in (q, k, v):
                x.grad = None
            with torch.no_grad():
                forward = self._milliseconds(partial(attend, q, k, v))
            out = attend(q, k, v)
            backward = self._milliseconds(partial(out.backward, d_out))
            if turn:  # the first one compiles
                found["forward"].append(forward)
                found["backward"].append(backward)
        return {kind: statistics.median(times) for kind, times in found.items()}

    def _tensors(self, heads: int, length: int, dim: int) -> list[Tensor]:
        generator = torch.Generator(self.device).manual_seed(0)
        shape = 1, heads, length, dim
        made = [torch.randn(shape, device=self.device, dtype=self.dtype, generator=generator) for _ in range(4)]
        return [*(x.requires_grad_() for x in made[:3]), made[3]]

    def _milliseconds(self, work: Callable[[], object]) -> float:
        if self.device != "cuda":
            begin = time.perf_counter()
            work()
            return 1000 * (time.perf_counter() - begin)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last)


def _dense(backend: SDPBackend, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def _held_to_float64(layout: ps.BlockLayout, tensors: list[Tensor], out: Tensor) -> None:
    q, k, v = (x.detach() for x in tensors[:3])
    length = layout.problem.q_len
    for head in (0, layout.problem.heads - 1):
        for row in range(length // (2 * ROWS), length, max(1, length // ROWS)):
            mask = torch.from_numpy(layout.expand(head, row, row + 1))[0].to(q.device)
            s = (k[0, head][mask].double() @ q[0, head, row].double()) / q.shape[3] ** 0.5
            want = torch.softmax(s, 0) @ v[0, head][mask].double()
            off = ((out[0, head, row].double() - want).norm() / want.norm()).item()
            assert off < 0.02, f"wrong: head {head} row {row} is off by {off:.3f}, expected below .02"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


def main(argv: list[str] | None = None) -> None:
    """Time everything that the time allows and write FILE."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(part) for part in text.split(",")]}
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lengths", **numbers, default=[32_768, 8_192])
    parser.add_argument("--dims", **numbers, default=[128, 64])
    parser.add_argument("--heads", type=int, default=16, help="where a pattern's heads are alike")
    parser.add_argument("--only", default="", help="only patterns whose name contains this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", type=float, default=100.0, help="seconds, after which nothing more is begun")
    parser.add_argument("--device", choices=DENSE, default="cuda")
    options = parser.parse_args(argv)
    # Triton's interpreter, which stands for a card in the tests, does not compute bfloat16 as a card does.
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float16
    bench = Bench(options.device, dtype, options.repeats, options.budget, options.out)
    asked = [one for one in subjects(options.heads) if options.only in one.name]
    lowered: dict[tuple[str, int], ps.BlockLayout] = {}  # kept for the next head dim
    for length in options.lengths:
        for dim in options.dims:
            for subject in sorted(asked, key=lambda one: one.preset):
                if time.monotonic() > bench.end:
                    print(f"the time is up at {subject.name}, S{length} D{dim}: {len(bench.rows)} rows")
                    return
                try:
                    key = subject.name, length
                    if key not in lowered:
                        lowered[key] = subject.lowered(length)
                    bench.run(subject, lowered[key], dim)
                except FAILURES as error:
                    print(f"{subject.name:28} S{length} D{dim}: {_first_line(error)}", flush=True)
        lowered.clear()


if __name__ == "__main__":
    main()
