"""`python -m benchmarks.context_parallel`: what sharding a pattern over ranks sends and how even it is, counted.

Nothing runs on a device: the plans of all ranks are made and their keys counted, beside what a ring
sends. Bytes are those of K and V in bfloat16 in one forward pass, over all links.
"""

from __future__ import annotations

import argparse
import datetime
import json
from dataclasses import dataclass
from pathlib import Path

import pattern_studio as ps
from attention_core.distributed import DistributedSparseConfig, distributed_plan

from .figure import log_log

HEADS, DIM = 16, 64
RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Case:
    """A pattern of so many tokens; `text` None stands for the hierarchical pattern of as many devices."""

    name: str
    text: str | None
    tokens: int
    heads: int = 1
    ranks: tuple[int, ...] = RANKS


CASES = (
    Case("window + sinks, 1M", "causal & (window(4095, 0) | sink(64))", 2**20),
    Case("window + sinks, 128K", "causal & (window(4095, 0) | sink(64))", 2**17, ranks=RANKS[:6]),
    Case("causal, 128K", "causal", 2**17, ranks=RANKS[:6]),
    Case("hierarchical, 1M, nodes of 8", None, 2**20, ranks=RANKS[2:]),
    Case(
        "random per head .05, 128K",
        "heads({" + ", ".join(f"{h}: random(51, unit=128, seed={h})" for h in range(HEADS)) + "})",
        2**17,
        HEADS,
        RANKS[:6],
    ),
)


def counted(case: Case, ranks: int) -> dict:
    """One row: the plan that is chosen, its bytes beside a ring's, and the bound on its speed-up."""
    way = "auto"
    if case.text is None:
        config = DistributedSparseConfig(local_sparsity=1.0, global_sparsity=0.2, inter_node_sparsity=0.05)
        pattern, way = config.pattern(case.tokens, ranks, min(8, ranks)), config.way
    else:
        pattern = ps.parse(case.text)
    layout = ps.lower(pattern, q_len=case.tokens, block=128, heads=case.heads)
    plan = distributed_plan(layout, ranks, 0, kv_heads=HEADS if case.heads == 1 else case.heads, way=way)
    itemsize = 2
    ring = plan.needs.ring_keys * 2 * DIM * itemsize
    sent = int(plan.bytes_between(DIM, DIM, itemsize).sum())
    return {
        "case": case.name,
        "pattern": case.text or str(pattern),
        "tokens": case.tokens,
        "ranks": ranks,
        "kv_heads": plan.kv_heads,
        "head_dim": DIM,
        "way": plan.needs.way,
        "mode": plan.mode,
        "bytes_sent": sent,
        "ring_bytes": ring,
        "share_of_ring": sent / ring,
        "imbalance": plan.needs.imbalance,
        "speed_up_bound": ranks / plan.needs.imbalance,
    }


def main() -> None:
    """Print a table and write benchmarks/results/<date>-context-parallel.json and its figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows, lines = [], {}
    print(f"{'case':32}{'ranks':>6} {'way':>11} {'mode':>6} {'MB sent':>9} {'of a ring':>9} {'bound':>7}")
    for case in CASES:
        for ranks in case.ranks:
            row = counted(case, ranks)
            rows.append(row)
            lines.setdefault(case.name, []).append((ranks, row["share_of_ring"]))
            print(
                f"{case.name:32}{ranks:6} {row['way']:>11} {row['mode']:>6} {row['bytes_sent'] / 1e6:9.1f} "
                f"{row['share_of_ring']:9.2%} {row['speed_up_bound']:7.2f}",
                flush=True,
            )
    date = datetime.date.today().isoformat()
    out = options.out or Path(__file__).parent / "results" / f"{date}-context-parallel.json"
    out.write_text(json.dumps({"counted": True, "date": date, "rows": rows}, indent=1) + "\n")
    out.with_suffix(".svg").write_text(log_log("Keys sent, as a share of a ring's", "ranks", "share", lines))


if __name__ == "__main__":
    main()
