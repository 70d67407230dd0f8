"""What a named pattern costs: predicted by the cost model, and measured where a benchmark's results have it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pattern_studio as ps
from pattern_studio.metrics import layout_cost

from .named import Named

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
TOKENS, HEADS = 32_768, 16  # a length at which time follows work
HEAD_DIM, BLOCK = 128, 128  # of the cost model's own cells, as
FITTED = (0.0156, 0.1)  # their block densities: pattern_studio/metrics/cost.py


def predicted(named: Named) -> dict[str, Any] | None:
    """One forward pass of the pattern, as it is written, over TOKENS tokens: an estimate, never a measurement.

    At D 128 and block 128 (or the pattern's own, where its draws depend on it), with the heads that it is drawn for or
    16. `flops` of the active tiles and `of_dense`, their share of all tiles', are exact; `forward_ms` is the cost
    model's for `card`, with its relative `error`; `beyond` is whether it has less or more work than what the model was
    fitted to. None for documents and grids, which end where they are drawn.
    """
    if named.problem.docs is not None:
        return None
    heads = named.problem.heads if named.problem.heads > 1 else HEADS
    block = named.block if "unit=block" in str(named.pattern) else BLOCK
    layout = ps.lower(named.pattern, ps.Problem(TOKENS, heads=heads), block=block, layer=named.layer)
    if layout.empty_rows:
        return None
    cost = layout_cost(layout, HEAD_DIM)
    assert cost.forward_ms is not None  # all heads, not one
    share = layout.tiles() / (layout.q_blocks * layout.kv_blocks * heads)
    return {
        "tokens": TOKENS,
        "heads": heads,
        "block": block,
        "flops": cost.forward_flops,
        "of_dense": float(f"{share:.4g}"),
        "forward_ms": float(f"{cost.forward_ms:.3g}"),
        "error": cost.forward_error,
        "beyond": not FITTED[0] <= share <= FITTED[1],
        "card": cost.card,
    }


def measured(named: Named, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a benchmark that timed this very pattern on a card, on the tensors nearest to a prediction's.

    A row is of the pattern if it has its hash or, in older results, its text, and was lowered for the same layer.
    Those of the greatest length up to TOKENS, then of the greatest head dim, are taken, and of a card, an arm, a pass
    and a block the last ones: a kernel that was made faster is not shown beside what it was. Each has with it the
    milliseconds of the fastest dense attention of the same run on the same tensors, `dense_ms`, where it has one; and
    `docs`, the lengths of the documents that were timed, where they are not its own repeated, which come first.
    Rows without a card were timed on a CPU, or count and time nothing: they are no times of a GPU.

    >>> one = Named("n", "N", "Ours", "S", "N.", "causal", ps.causal, ps.Problem(64), 32)
    >>> row = {"card": "C", "arm": "ours", "pass": "forward", "ms": 1.5, "shape": {"S": 64, "D": 32, "H": 2}}
    >>> dense = row | {"pattern": "dense", "arm": "sdpa", "ms": 3.0}
    >>> measured(one, [row | {"pattern": "n", "hash": ps.causal.hash}, dense])
    [{'card': 'C', 'date': None, 'arm': 'ours', 'pass': 'forward', 'ms': 1.5, 'tokens': 64, 'heads': 2, \
'head_dim': 32, 'block': None, 'docs': None, 'dense_ms': 3.0}]
    >>> measured(one, [row | {"pattern": "causal ", "card": None}]), measured(one, [row | {"pattern": "causal & x"}])
    ([], [])
    """
    rows = [row for row in rows if row.get("card")]
    own = [row for row in rows if _is(named, row)]
    if not own:
        return []
    cell = max((_cell(row) for row in own), key=lambda cell: (cell[0] <= TOKENS, *cell))
    dense: dict[tuple, float] = {}
    for row in rows:
        if row["pattern"] == "dense":
            dense[_run(row)] = min(row["ms"], dense.get(_run(row), row["ms"]))
    last: dict[tuple, dict[str, Any]] = {}
    for row in sorted(own, key=lambda row: (_other_documents(named, row) is None, row.get("date") or "")):
        if _cell(row) == cell:
            last[row["card"], row["arm"], row["pass"], str(row["shape"].get("block"))] = row
    return [
        {"card": row["card"], "date": row.get("date"), "arm": row["arm"], "pass": row["pass"], "ms": row["ms"]}
        | {"tokens": cell[0], "heads": row["shape"].get("H"), "head_dim": cell[1], "block": row["shape"].get("block")}
        | {"docs": _other_documents(named, row), "dense_ms": dense.get(_run(row))}
        for row in last.values()
    ]


def _other_documents(named: Named, row: dict[str, Any]) -> list[int] | None:
    """The documents that a row timed; None if they are the pattern's own, again and again, the last one cut."""
    docs, own = row.get("docs"), named.problem.docs
    if docs is None or own is None:
        return None
    *whole, cut = islice(cycle(own), len(docs))
    return None if docs[:-1] == whole and docs[-1] <= cut else docs


def _cell(row: dict[str, Any]) -> tuple[int, int]:
    return row["shape"]["S"], row["shape"].get("D") or 0


def _run(row: dict[str, Any]) -> tuple:
    """What two rows share whose times can be compared."""
    tensors = (row["shape"].get(key) for key in ("B", "H", "Hkv", "S", "D"))
    return *(row.get(key) for key in ("card", "torch", "triton", "date", "pass")), *tensors


def _is(named: Named, row: dict[str, Any]) -> bool:
    if "hash" in row:
        return row["hash"] == named.pattern.hash and row.get("layer") in (named.layer, None)
    bare = "".join(str(row["pattern"]).split())
    return bare in ("".join(named.text.split()), "".join(str(named.pattern).split()))


def timed_rows(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All rows with a card, a pattern and a time in milliseconds, of all results that are kept."""
    out = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        rows = found.get("rows", []) if isinstance(found, dict) else found
        needed = {"card", "pattern", "shape", "arm", "pass", "ms"}
        out += [row for row in rows if isinstance(row, dict) and needed <= row.keys()]
    return out
