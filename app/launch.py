"""Start the app: what `pattern-studio app` runs."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from pattern_studio import StudioError

from .theme import OPTIONS


def options(port: int, headless: bool = False) -> dict[str, object]:
    """Streamlit's options. All are passed by hand, since from an installed wheel no config file is read.

    Without `headless` a browser opens where there is a screen.

    >>> options(9000)["server.port"], options(9000)["browser.gatherUsageStats"]
    (9000, False)
    """
    return {"server.port": port, **OPTIONS, **({"server.headless": True} if headless else {})}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve Pattern Studio on http://localhost:8501, to this machine only, until it is stopped.

    `--port` chooses another port; `--headless` opens no browser.

    Raises:
        StudioError: streamlit is not installed.
    """
    parser = argparse.ArgumentParser(prog="pattern-studio app", description="Open Pattern Studio in the browser.")
    parser.add_argument("--port", type=int, default=8501, help="on this machine (8501)")
    parser.add_argument("--headless", action="store_true", help="open no browser")
    chosen = parser.parse_args(argv)
    if not 1 <= chosen.port <= 65535:
        parser.error(f"--port takes a number from 1 to 65535, got {chosen.port}")
    measuring = Thread(target=_load_torch, daemon=True)
    measuring.start()
    try:
        from .serve import serve
    except ImportError as error:
        raise StudioError(f"the app needs {error.name}: pip install 'pattern-studio[app]'") from error
    warm()
    measuring.join()  # else torch would load while the first page is drawn, and both would crawl
    # Streamlit collects garbage after every run of a page, all generations, and whatever else would run stands still:
    # 0.3 s with all that torch is made of. What is loaded by now stays loaded; it need not be looked through again.
    gc.collect()
    gc.freeze()
    serve(options(chosen.port, chosen.headless), Path(__file__).parent / "entry" / "studio.py")


def warm() -> None:
    """Load what the first page needs and compute what it shows, so that no visitor waits for that."""
    import pandas  # noqa: F401  Streamlit loads these at the first component and the first image
    import PIL.Image  # noqa: F401
    import pyarrow  # noqa: F401

    from pattern_studio.plot.colours import DARK, LIGHT

    from . import compute, router  # noqa: F401  the pages with all that they import
    from .state import State

    state = State()
    for colours in (LIGHT, DARK):
        compute.map_of(state, colours)
    compute.quality_job("", state.pattern, state.shown.block, None).result()


def _load_torch() -> None:
    """It takes seconds; what a pattern keeps is measured with it."""
    import torch  # noqa: F401
