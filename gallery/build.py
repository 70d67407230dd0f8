"""Build the gallery: figures.json, pictures/*.svg, site/index.html, from patterns/*.txt and compatibility.md.

    python -m gallery.build

It also writes app/static/gallery.json, the same patterns and figures for the app, whose wheel has no gallery.
Pictures and page follow from the patterns and the figures alone, so that tests hold them to what is kept here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pattern_studio.capture import bundled

from .figures import figures
from .matrix import kept
from .named import gallery
from .page import page
from .picture import svg

HERE = Path(__file__).parent
PACKAGED = HERE.parent / "app" / "static" / "gallery.json"
PICTURES, SITE, FIGURES = HERE / "pictures", HERE / "site" / "index.html", HERE / "figures.json"


def capture_words() -> str:
    """What the bundled capture is, in words."""
    capture = bundled()
    layers = " and ".join(map(str, capture.layers))
    return f"layers {layers} of {capture.model.split(',')[0]}, reading {len(capture.tokens):,} tokens of prose"


def site(found: dict[str, Any]) -> str:
    """The page for these figures."""
    return page(gallery(), found, capture_words(), kept())


def packaged(found: dict[str, Any]) -> dict[str, Any]:
    """What the app shows: each pattern as its file has it, with what it keeps and costs; and what was measured on."""
    patterns = [
        {
            "name": one.name,
            "title": one.title,
            "family": one.family,
            "source": one.source,
            "note": one.note,
            "text": one.text,
            "tokens": one.problem.q_len,
            "heads": one.problem.heads,
            "docs": list(one.problem.docs or ()),
            "block": one.block,
            "head": one.head,
            "layer": one.layer,
            "why_not": found[one.name]["why_not"],
            "kept": _without(found[one.name]["kept"], "mass_by_distance"),
            "predicted": found[one.name]["predicted"],
            "measured": found[one.name]["measured"],
        }
        for one in gallery()
    ]
    return {"capture": capture_words(), "patterns": patterns}


def _without(values: dict[str, Any] | None, key: str) -> dict[str, Any] | None:
    return values and {name: value for name, value in values.items() if name != key}


def main() -> None:
    """Write everything anew; pictures of patterns that are gone are removed."""
    PICTURES.mkdir(exist_ok=True)
    SITE.parent.mkdir(exist_ok=True)
    capture, named = bundled(), gallery()
    found = {one.name: figures(one, capture) for one in named}
    FIGURES.write_text(json.dumps(found, indent=1) + "\n")
    for old in set(PICTURES.glob("*.svg")) - {PICTURES / f"{one.name}.svg" for one in named}:
        old.unlink()
    for one in named:
        (PICTURES / f"{one.name}.svg").write_text(svg(one))
    SITE.write_text(site(found))
    PACKAGED.write_text(json.dumps(packaged(found), indent=1) + "\n")
    size = sum(path.stat().st_size for path in PICTURES.iterdir())
    print(
        f"{len(named)} patterns: {FIGURES.name}, {PICTURES.name} ({size:,} bytes), {SITE} ({len(site(found)):,} bytes)"
    )


if __name__ == "__main__":
    main()
