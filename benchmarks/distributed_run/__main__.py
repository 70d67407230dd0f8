"""`python -m benchmarks.distributed_run --out FOLDER`: sharded attention on the GPUs of one host, timed and counted.

Groups of 1, 2, 4, ... ranks, one a GPU, are started inside (NCCL; gloo on the CPU where there is no GPU). Each group is
first held to one device and a float64 oracle on small problems, and times nothing if it is wrong. Then every case runs
on every group, the most telling first, each within a limit, and is held to the oracle and to one device's gradients by
itself; the JSON is written anew after each. A case that fails or hangs costs its group, which is started again for the
next.

`linear` is the time of one device / (ranks x time), `bound` what the uneven pairs of the ranks let it be. Bytes are
those of all ranks: counted by the plan beforehand, handed to the all-to-alls, and read from NVLink's own counters.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from pathlib import Path

import torch

from ..figure import log_log
from . import links, work
from .cases import Case, cases, small
from .group import START, CaseError, Group
from .rows import HEAD, PASSES, checksums, differing, line, rows_of

TOLERANCE = 2e-2  # of gradients' checksums: sums of squares of half-precision values, once more rounded when merged


def main(argv: list[str] | None = None) -> int:
    """Run all cases that the time allows; returns 1 where a group failed or computed something else than one device."""
    options = _options(argv)
    run = Run(options)
    try:
        run.all()
    finally:
        run.close()
    print(f"\n{HEAD}")
    print("\n".join(line(row) for row in run.rows))
    return int(bool(run.wrong or run.failed))


class Run:
    """The groups, the clock, and the rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, "cuda" if torch.cuda.is_available() else "cpu"
        cards = torch.cuda.device_count() if self.device == "cuda" else max(options.ranks)
        self.sizes = [size for size in options.ranks if size <= cards]
        for size in set(options.ranks) - set(self.sizes):
            print(f"{size} ranks: left out, there are {cards} cards")
        self.end = time.monotonic() + options.budget
        self.groups: dict[int, Group] = {}
        self.rows: list[dict] = []
        self.alone: dict[tuple[str, int], tuple[dict[str, float], list[float]]] = {}  # milliseconds, checksums
        self.notes: list[str] = []
        self.failed: set[tuple[str, int]] = set()  # cases that raised or hung, on so many ranks
        self.wrong: set[int] = set()
        self.equal: list[dict] = []
        self.stamp = {
            "card": torch.cuda.get_device_name() if self.device == "cuda" else None,
            "link": links.link() if self.device == "cuda" else "gloo on one machine",
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
        }

    def all(self) -> None:
        """Equality first, then every case on every group."""
        for size in self.sizes:  # all at once: processes take their time to start
            self._group(size)
        for size in self.sizes:  # apart from the first case, whose limit is no time for imports
            self._ask(size, "start", work.ready, limit=START)
        for size in self.sizes:
            if size > 1:
                self._equal(size)
        for case in cases(self.options.tokens, self.options.long, self.options.heads, self.options.dim):
            if self.options.only not in case.name:
                continue
            for size in self.sizes:
                if size not in self.wrong and not (size == 1 and self._key(case) in self.alone):
                    self._timed(case, size)

    def _timed(self, case: Case, size: int) -> None:
        found = self._ask(size, case.name, work.timed, case, self.options.seconds, self.options.trace)
        if found is None:
            return
        if self.options.trace:
            name = f"timeline-{case.name}-{size}.json".replace(" ", "-")
            (self.options.out / name).write_text(json.dumps({"rows": found[0]["timeline"]}, indent=0) + "\n")
        if size == 1:
            self.alone[self._key(case)] = {name: found[0][name]["ms"] for name in PASSES}, checksums(found)
        alone, sums = self.alone.get(self._key(case), (None, None))
        differ = differing(sums, checksums(found), TOLERANCE) if sums else ""
        if differ:
            self.wrong.add(size)
            self._note(f"{case.name}, {size} ranks: WRONG gradients, {differ}")
            return
        for row in rows_of(case, size, found, alone):
            self.rows.append(self.stamp | row)
            print(line(row), flush=True)
        self.write()

    @staticmethod
    def _key(case: Case) -> tuple[str, int]:
        return case.text, case.tokens  # one device knows no modes

    def _equal(self, size: int) -> None:
        for case in small(self.options.small_heads, self.options.dim):
            name = f"equality, {case.name}"
            found = self._ask(size, name, work.equal, case, limit=START)  # it compiles what was never compiled
            if found is None:
                continue
            if any(isinstance(one, str) for one in found):
                self.wrong.add(size)
                self._note(f"{name}, {size} ranks: WRONG, {', '.join(one for one in found if isinstance(one, str))}")
                return
            worst = {name: max(one[name] for one in found) for name in found[0]}
            self.equal.append({"case": case.name, "pattern": case.text, "ranks": size, "errors": worst})
            told = ", ".join(f"{name} {error:.1e}" for name, error in worst.items())
            print(f"{size} ranks equal one device, {case.name}: off from float64 by {told}", flush=True)
        self.write()

    def _ask(self, size: int, name: str, function, *arguments, limit: float | None = None):
        left = self.end - time.monotonic()
        if left < 1:
            self._note(f"{name}, {size} ranks: left out, the time is up")
            return None
        begin = time.monotonic()
        try:
            found = self._group(size).ask(function, *arguments, limit=min(limit or self.options.limit, left))
        except CaseError as error:
            self._note(f"{name}, {size} ranks: {error}")
            self.failed.add((name, size))
            self.groups.pop(size).close(0.1)  # its ranks may wait for one another
            return None
        print(f"  ({name}, {size} ranks: {time.monotonic() - begin:.1f} s with all preparation)", flush=True)
        return found

    def _group(self, size: int) -> Group:
        if size not in self.groups:
            folder = Path(tempfile.mkdtemp(prefix="ranks-"))
            # Whoever hangs is ended from outside at a case's limit; the group itself waits for slow compilers, too.
            self.groups[size] = Group(size, self.device, folder, max(START, self.options.limit))
        return self.groups[size]

    def _note(self, text: str) -> None:
        print(text, flush=True)
        self.notes.append(text)
        self.write()

    def write(self) -> None:
        """All that was found so far, and its figures: time and bytes against ranks."""
        out = self.options.out / f"{self.stamp['date']}-distributed-run.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        content = {"equal": self.equal, "notes": self.notes, "rows": self.rows}
        out.write_text(json.dumps(content, indent=1) + "\n")
        times: dict[str, list[tuple[float, float]]] = {}
        sent: dict[str, list[tuple[float, float]]] = {}
        for row in self.rows:
            if row["pass"] == "step":
                times.setdefault(row["case"], []).append((row["ranks"], row["ms"]))
                if row["bytes_handed"]:
                    sent.setdefault(row["case"], []).append((row["ranks"], row["bytes_handed"] / 1e6))
        for name, y_name, lines in (("time", "ms", times), ("bytes", "MB over all links", sent)):
            if lines:
                title = f"Forward and backward, {self.stamp['card'] or 'CPU'}"
                out.with_name(f"{out.stem}-{name}.svg").write_text(log_log(title, "ranks", y_name, lines))

    def close(self) -> None:
        """End every process of this run."""
        for group in self.groups.values():
            group.close()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[1, 4, 2])
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    for name, value, what in (
        ("tokens", 131_072, "of most cases"),
        ("long", 1_048_576, "tokens of the longest case"),
        ("heads", 16, "of q, k and v"),
        ("small-heads", 4, "of the problems that are held to a dense oracle"),
        ("dim", 64, "channels of a head"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=what)
    parser.add_argument(
        "--trace", action="store_true", help="write what rank 0's card did during one pass of each kind"
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="of a window of steps; five are timed")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one case on one group")
    parser.add_argument("--budget", type=float, default=230.0, help="seconds for everything")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
