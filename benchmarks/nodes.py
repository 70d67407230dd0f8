"""`python -m benchmarks.nodes`: what 64 nodes would send and compute, on paper and by simulation; nothing is timed.

On paper: the keys that a window and sinks need, worked out from lengths alone. By simulation: what all ranks need of
each other is found, every transfer is put on its link (inside a node, or between nodes) and each rank's bytes in and
out are added up: for a fetch as plans choose it, with an all-reduce of the keys that most ranks read where that pays;
for one in which an owner sends every key to each reader by itself; and for a ring. Milliseconds follow from speeds that
are assumed, given as arguments and kept in the rows. Bytes are those of K and V in bfloat16 in one forward pass; a
backward pass returns as many.
"""

from __future__ import annotations

import argparse
import datetime
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pattern_studio as ps
from attention_core.distributed import Traffic, needs, routed

WINDOW, SINKS, BLOCK = 4095, 64, 128
HEADS, DIM, ITEMSIZE = 16, 64, 2
WAYS = ("fetch", "one by one", "ring")
KEY_BYTES = 2 * DIM * ITEMSIZE  # K and V of one key of one head


@dataclass(frozen=True)
class Speeds:
    """What is assumed of a cluster: GB/s of a card inside its node and to other nodes, one way, and its TFLOP/s."""

    inside: float = 450.0  # NVLink of an H100, one way
    between: float = 50.0  # a 400 Gb/s network card for each GPU
    tflops: float = 300.0  # of the forward pass


@dataclass(frozen=True)
class Load:
    """Bytes of each rank in one forward pass, int64 [ranks], on links inside nodes and between them, out and in."""

    inside_out: NDArray[np.int64]
    inside_in: NDArray[np.int64]
    between_out: NDArray[np.int64]
    between_in: NDArray[np.int64]

    @property
    def inside(self) -> int:
        """Of the busiest direction of a card's link inside its node."""
        return int(max(self.inside_out.max(), self.inside_in.max()))

    @property
    def between(self) -> int:
        """Of the busiest direction of a card's link to other nodes."""
        return int(max(self.between_out.max(), self.between_in.max()))

    @property
    def total(self) -> int:
        """Over all links."""
        return int(self.inside_out.sum() + self.between_out.sum())


def on_paper(tokens: int, ranks: int) -> int:
    """Keys of one head that window + sinks sends in all, if each rank holds one stretch of whole blocks.

    A rank reads the blocks back to its first row's window, and the sinks' block where the window has left it.

    >>> on_paper(2**20, 256) == 255 * (4096 + 128) - 128
    True
    """
    shard = tokens // ranks
    total = 0
    for start in range(shard, tokens, shard):
        first = max(0, (start - WINDOW) // BLOCK)
        total += start - first * BLOCK + (-(-SINKS // BLOCK) * BLOCK if first else 0)
    return total


def loaded(traffic: Traffic, per_node: int) -> Load:
    """Every rank's load. An all-reduce is taken as a ring's, in float32, over the ranks in their order."""
    ranks = np.arange(traffic.needs.ranks)
    sent = traffic.keys_between * KEY_BYTES + traffic.reduced_between * 2 * KEY_BYTES
    node = ranks // per_node
    same = node[:, None] == node
    inside, between = np.where(same, sent, 0), np.where(same, 0, sent)
    return Load(inside.sum(1), inside.sum(0), between.sum(1), between.sum(0))


def row(tokens: int, nodes: int, per_node: int, mode: str, speeds: Speeds) -> dict:
    """One row: the load of one way of sending, and what it would take at the assumed speeds."""
    text = f"causal & (window({WINDOW}, 0) | sink({SINKS}))"
    layout = ps.lower(ps.parse(text), q_len=tokens, block=BLOCK)
    found = needs(layout, nodes * per_node, HEADS, "contiguous")
    traffic = routed(found, "ring" if mode == "ring" else "fetch", False if mode == "one by one" else None)
    load = loaded(traffic, per_node)
    flops = 4 * DIM * HEADS * found.pairs
    return {
        "counted": True,
        "pattern": text,
        "hash": ps.parse(text).hash,
        "tokens": tokens,
        "heads": HEADS,
        "head_dim": DIM,
        "nodes": nodes,
        "per_node": per_node,
        "ranks": nodes * per_node,
        "mode": mode,
        "bytes_sent": load.total,
        "bytes_on_paper": on_paper(tokens, nodes * per_node) * HEADS * KEY_BYTES if mode == "one by one" else None,
        "keys_by_all_reduce": traffic.common_keys,
        "messages_most": int((traffic.keys_between > 0).sum(1).max()),  # of one rank, beside an all-reduce
        "busiest_inside": load.inside,
        "busiest_between": load.between,
        "median_received": int(np.median(load.inside_in + load.between_in)),
        "pairs_least": int(found.pairs.min()) * HEADS,
        "pairs_most": int(found.pairs.max()) * HEADS,
        "speed_up_bound": found.ranks / found.imbalance,
        "assumed": vars(speeds),
        "compute_ms_assumed": float(flops.max() / speeds.tflops / 1e9),
        "transfer_ms_assumed": max(load.inside / speeds.inside, load.between / speeds.between) / 1e6,
    }


def main(argv: list[str] | None = None) -> None:
    """Print a table and write FILE, benchmarks/results/<date>-nodes.json if none is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokens", type=int, default=2**20)
    parser.add_argument("--nodes", type=int, default=64)
    for name, value in vars(Speeds()).items():
        parser.add_argument(f"--{name}", type=float, default=value, help=f"assumed, see Speeds; {value:g}")
    options = parser.parse_args(argv)
    speeds = Speeds(options.inside, options.between, options.tflops)
    rows = [row(options.tokens, options.nodes, per_node, mode, speeds) for per_node in (8, 4) for mode in WAYS]
    print(f"{options.tokens:,} tokens, {rows[0]['pattern']}, {HEADS} heads, D {DIM}, one forward pass")
    print(
        f"{'nodes x GPUs':14}{'way':>11} {'GB sent':>9} {'MB a rank reads':>16} {'busiest link, MB':>17} "
        f"{'to other nodes':>15} {'Gpairs a rank':>16} {'ms to send':>11} {'to compute':>11}"
    )
    for one in rows:
        pairs = f"{one['pairs_least'] / 1e9:.3f} - {one['pairs_most'] / 1e9:.3f}"
        print(
            f"{one['nodes']:>5} x {one['per_node']:<6}{one['mode']:>11} {one['bytes_sent'] / 1e9:>9.2f} "
            f"{one['median_received'] / 1e6:>16.1f} {one['busiest_inside'] / 1e6:>17.1f} "
            f"{one['busiest_between'] / 1e6:>15.1f} {pairs:>16} "
            f"{one['transfer_ms_assumed']:>11.2f} {one['compute_ms_assumed']:>11.2f}"
        )
    print("(ms at assumed speeds: " + ", ".join(f"{name} {value:g}" for name, value in vars(speeds).items()) + ")")
    date = datetime.date.today().isoformat()
    out = options.out or Path(__file__).parent / "results" / f"{date}-nodes.json"
    out.write_text(json.dumps({"counted": True, "date": date, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
