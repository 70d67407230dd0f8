"""Results of a benchmark, as benchmarks.run writes them, made up and of the project."""

from __future__ import annotations

import json
from pathlib import Path

from pattern_studio_app.prediction import MODEL_CARD, Subject

import pattern_studio as ps

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
H100 = RESULTS / "2026-11-28-h100-d128.json"
TEXT = "causal & window(1023, 0)"


def row(**changes) -> dict:
    """A row of a result, as benchmarks.run writes it; `S=1` and the like change its shape."""
    shape = {"B": 1, "H": 16, "Hkv": 16, "S": 4096, "D": 128, "block": [128, 128]}
    shape |= {name: changes.pop(name) for name in shape.keys() & changes.keys()}
    return {
        "card": "Card X", "torch": "2.11.0", "triton": "3.6.0", "date": "2026-11-28", "shape": shape,
        "pattern": "random_0.10", "density": 0.1, "arm": "ours", "pass": "forward", "ms": 2.0, "tflops": 300.0,
    } | changes  # fmt: skip


def data(*rows: dict) -> bytes:
    return json.dumps({"rows": rows}).encode()


def linear(card: str = "Card X", call: float = 0.5, teraflops: float = 200.0, **changes) -> list[dict]:
    """Cells of a card whose time is exactly a call and a speed, forward and backward, with dense beside them."""
    rows = []
    for direction, products in (("forward", 2), ("backward", 5)):
        for density in (0.05, 0.1, 0.2, 0.4, 1.0):
            ms = call + products * 2 * 128 * 16 * density * 4096**2 / (teraflops * 1e9)
            dense = {"arm": "sdpa_cudnn", "pattern": "dense"} if density == 1 else {}
            rows.append(row(card=card, density=density, ms=ms, **{"pass": direction} | dense | changes))
    return rows


def subject(text: str = TEXT, card: str = MODEL_CARD, dim: int = 128, block: int = 128, q_len: int = 4096) -> Subject:
    pattern = ps.parse(text)
    return Subject(pattern, ps.lower(pattern, q_len=q_len, heads=16, block=block), dim, 16, card)
