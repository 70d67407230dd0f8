"""Build the gallery: figures.json, pictures/*.svg and site/index.html, from patterns/*.txt and compatibility.md.

    python -m gallery.build

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
PICTURES, SITE, FIGURES = HERE / "pictures", HERE / "site" / "index.html", HERE / "figures.json"


def capture_words() -> str:
    """What the bundled capture is, in words."""
    capture = bundled()
    layers = " and ".join(map(str, capture.layers))
    return f"layers {layers} of {capture.model.split(',')[0]}, reading {len(capture.tokens):,} tokens of prose"


def site(found: dict[str, Any]) -> str:
    """The page for these figures."""
    return page(gallery(), found, capture_words(), kept())


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
    size = sum(path.stat().st_size for path in PICTURES.iterdir())
    print(
        f"{len(named)} patterns: {FIGURES.name}, {PICTURES.name} ({size:,} bytes), {SITE} ({len(site(found)):,} bytes)"
    )


if __name__ == "__main__":
    main()
