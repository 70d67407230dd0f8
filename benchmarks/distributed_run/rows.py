"""Rows of the result, put together from what each rank found, and the table that is printed."""

from __future__ import annotations

import math

import pattern_studio as ps

from .cases import Case

PASSES = {"forward": 1, "step": 2}  # a step's backward pass returns as many bytes as its forward pass fetched


def rows_of(case: Case, ranks: int, found: list[dict], alone: dict[str, float] | None) -> list[dict]:
    """A row for the forward pass and one for a step of forward and backward.

    `found` is what each rank found; `alone` are the milliseconds of one device by pass, where they are known.
    """
    plan = found[0]["plan"]
    out = []
    for name, passes in PASSES.items():
        ms, carried = found[0][name]["ms"], found[0][name]["carried"]
        counted = plan["counted"] * passes
        handed = sum(one[name]["handed"] for one in found)
        out.append(
            {
                "case": case.name,
                "pattern": case.text,
                "hash": ps.parse(case.text).hash,
                "shape": {
                    "B": 1, "H": case.heads, "Hkv": case.heads, "S": case.tokens, "D": case.dim,
                    "block": [case.block, case.block],
                },
                "ranks": ranks,
                "mode": plan["mode"],
                "way": plan["way"],
                "plan": plan["text"],
                "pass": name,
                "ms": ms,
                "linear": alone[name] / ms / ranks if alone and ranks > 1 else None,
                "bound": 1 / plan["imbalance"],
                "bytes_counted": counted,
                "bytes_handed": handed,
                "bytes_on_nvlink": carried,
                "bytes_of_a_ring": plan["ring"] * passes,
                "error": max(one["error"] for one in found),
                "gib": max((one["gib"] for one in found if "gib" in one), default=None),
            }
        )  # fmt: skip
    return out


def checksums(found: list[dict]) -> list[float]:
    """Of dq, dk and dv over all ranks."""
    return [math.fsum(one["checksums"][n] for one in found) for n in range(3)]


def differing(one: list[float], many: list[float], tolerance: float) -> str:
    """Which gradients differ by more than a relative tolerance, in words; "" where none does.

    >>> differing([1.0, 2.0, 3.0], [1.0, 2.5, 3.0], 0.01)
    'dk: 2 on one device, 2.5 sharded'
    """
    return ", ".join(
        f"{name}: {a:.6g} on one device, {b:.6g} sharded"
        for name, a, b in zip(("dq", "dk", "dv"), one, many, strict=True)
        if not abs(a - b) <= tolerance * abs(a)
    )


def line(row: dict) -> str:
    """One row of the table."""
    carried = row["bytes_on_nvlink"]
    linear = "" if row["linear"] is None else f"{row['linear']:.3f}"
    return (
        f"{row['case']:22}{row['shape']['S']:>8} {row['ranks']:>5} {row['mode']:>10} {row['pass']:>8} "
        f"{row['ms']:>10.3f} {linear:>7} {row['bound']:>6.3f} "
        f"{row['bytes_counted'] / 1e6:>10.2f} {row['bytes_handed'] / 1e6:>10.2f} "
        f"{'not read' if carried is None else f'{carried / 1e6:.2f}':>10} "
        f"{row['bytes_counted'] / row['bytes_of_a_ring'] if row['bytes_of_a_ring'] else 0:>7.2%}"
    )


HEAD = (
    f"{'case':22}{'tokens':>8} {'ranks':>5} {'mode':>10} {'pass':>8} {'ms':>10} {'linear':>7} {'bound':>6} "
    f"{'MB need':>10} {'MB handed':>10} {'MB NVLink':>10} {'of ring':>7}"
)
