"""The compatibility matrix: every preset against every export target, with how faithful the export is.

    python -m gallery.matrix

writes compatibility.md, and app/static/compatibility.json for the app's Export page. A cell is the best of three block
sizes: most targets have their favourite, and what matters is whether there is one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pattern_studio as ps
from pattern_studio.exporters import TARGETS, Fidelity, check
from pattern_studio.presets import PRESETS

TABLE = Path(__file__).parent / "compatibility.md"
PACKAGED = Path(__file__).parents[1] / "app" / "static" / "compatibility.json"  # the gallery is not in the wheel
TOKENS = 1024
HEADS = 4
LAYER = 0
BLOCKS = (128, 64, 16)
NATIVE = ("json", "npz", "safetensors")  # our own files hold everything
# Presets whose defaults are for other lengths or heads.
SIZED = {
    "longformer": "longformer(window=257)",
    "longformer_dilated": "longformer_dilated(window=257, heads=4, dilated_heads=2)",
    "longnet_heads": "longnet_heads(4, (128, 256, 512, 1024), (1, 2, 4, 8))",
    "streaming_llm": "streaming_llm(sinks=4, recent=252)",
    "a_shape": "a_shape(sinks=64, recent=256)",
    "vertical_slash": "vertical_slash(cols=(range(30), 300), offsets=(range(128), 512))",
    "mistral": "mistral(256)",
    "gemma": "gemma(layers=26, window=256)",
    "llama4": "llama4(layers=48, size=256)",
    "swin": "swin(h=32, w=32, window=8)",
    "axial_image": "axial_image(32, 32)",
    "sliding_tile": "sliding_tile(4, 16, 16, tile=(4, 4, 8), window=(1, 3, 1))",
    "radial_video": "radial_video(128)",
    "mesh_levels": "mesh_levels(device=256, node=512)",
}


@dataclass(frozen=True)
class Cell:
    """How a target holds a preset: the best fidelity, the block size that gives it, the pairs of the pattern."""

    fidelity: Fidelity
    block: int
    pairs: int

    def __str__(self) -> str:
        if self.fidelity.kind == "exact":
            return "exact"
        if self.fidelity.kind == "unsupported":
            return "no"
        sign = {"cover": "+", "lossy": "-"}[self.fidelity.kind]
        share = 100 * self.fidelity.pairs / self.pairs
        return (
            f"{self.fidelity.kind} {sign}{share:,.0f} %"
            if share >= 100
            else f"{self.fidelity.kind} {sign}{share:.3g} %"
        )


def text_of(name: str) -> str:
    """The preset as the matrix takes it.

    >>> text_of("mistral"), text_of("bigbird")
    ('mistral(256)', 'bigbird()')
    """
    return SIZED.get(name, f"{name}()")


def cell(pattern: ps.Pattern, to: str) -> Cell:
    """The best that a target does with a pattern, on TOKENS tokens and HEADS heads."""
    problem = ps.Problem(TOKENS, heads=HEADS)
    tried = [(check(pattern, problem, block, to, layer=LAYER), block) for block in BLOCKS]
    kinds = ("exact", "cover", "lossy", "unsupported")
    best, block = min(tried, key=lambda one: (kinds.index(one[0].kind), one[0].pairs))
    return Cell(best, block, ps.lower(pattern, problem, block=block, layer=LAYER).pairs)


def targets() -> list[str]:
    """The targets that have a column."""
    return [name for name in TARGETS if name not in NATIVE]


def row(name: str) -> dict[str, Cell]:
    """The cells of a preset, by target."""
    pattern = ps.parse(text_of(name))
    return {to: cell(pattern, to) for to in targets()}


def rows() -> dict[str, dict[str, Cell]]:
    """The whole matrix: preset -> target -> cell. Takes minutes."""
    return {name: row(name) for name in PRESETS}


def packaged(found: dict[str, dict[str, Cell]]) -> dict[str, Any]:
    """The matrix as values that JSON can hold."""
    return {
        "tokens": TOKENS,
        "heads": HEADS,
        "layer": LAYER,
        "blocks": list(BLOCKS),
        "presets": {
            name: {"text": text_of(name), "cells": {to: _packaged(one) for to, one in cells.items()}}
            for name, cells in found.items()
        },
    }


def _packaged(one: Cell) -> dict[str, Any]:
    known: dict[str, Any] = {"kind": one.fidelity.kind, "block": one.block}
    if one.fidelity.kind == "unsupported":
        return known | {"reason": one.fidelity.reason}
    share = {"cover": "added", "lossy": "dropped"}
    if one.fidelity.kind in share:
        known[share[one.fidelity.kind]] = float(f"{100 * one.fidelity.pairs / one.pairs:.3g}")
    return known


def markdown(found: dict[str, dict[str, Cell]]) -> str:
    """The matrix as Markdown, with every reason below it."""
    reasons: dict[str, int] = {}
    lines = []
    for name, cells in found.items():
        shown = [f"`{name}`"]
        for one in cells.values():
            why = one.fidelity.reason
            shown.append(f"no [{reasons.setdefault(why, len(reasons) + 1)}]" if str(one) == "no" else str(one))
        lines.append(f"| {' | '.join(shown)} |")
    sized = ", ".join(f"`{text}`" for text in SIZED.values())
    return "\n".join(
        [
            "# Which library holds which preset",
            "",
            "Made by `python -m gallery.matrix`, and held to the code by a test.",
            "",
            f"Every preset on {TOKENS:,} tokens and {HEADS} heads, layer {LAYER}; a cell is the best of blocks "
            f"{', '.join(map(str, BLOCKS[:-1]))} and {BLOCKS[-1]}. *exact*: the very same pairs. *cover*: all of the "
            "pattern's pairs and so many more, in per cent of them; written only when asked for by name. *no*: "
            "refused, for the reason below. `pattern-studio doctor` says what change would help. Our own files "
            f"({', '.join(f'`{name}`' for name in NATIVE)}) hold every pattern exactly.",
            "",
            f"| | {' | '.join(f'`{name}`' for name in targets())} |",
            f"|---{'|---' * len(targets())}|",
            *lines,
            "",
            "Presets are taken with their defaults, but for " + sized + ".",
            "",
            *(f"{n}. {why}" for why, n in reasons.items()),
            "",
        ]
    )


def kept() -> dict[str, dict[str, str]]:
    """compatibility.md read back: preset -> target -> cell, a refusal as `no: ` and its reason.

    >>> kept()["mistral"]["natten"], kept()["bigbird"]["vertical_slash"][:17]
    ('exact', 'no: it is causal,')
    """
    text = TABLE.read_text()
    reasons = dict(re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE))
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    names = [name.strip(" |`") for name in lines[0]]
    table = {}
    for preset, *cells in lines[2:]:
        told = [re.sub(r"^no \[(\d+)\]$", lambda n: f"no: {reasons[n[1]]}", one) for one in cells]
        table[preset.strip("`")] = dict(zip(names, told, strict=True))
    return table


def main() -> None:
    """Write compatibility.md and compatibility.json."""
    found = rows()
    TABLE.write_text(markdown(found))
    PACKAGED.write_text(json.dumps(packaged(found), indent=1) + "\n")
    print(f"{TABLE}: {len(PRESETS)} presets, {len(targets())} targets")


if __name__ == "__main__":
    main()
