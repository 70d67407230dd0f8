"""Start the app: what `pattern-studio app` runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from pattern_studio import StudioError

from .theme import OPTIONS


def options(port: int, headless: bool = False) -> list[str]:
    """Streamlit's command-line options. All are passed by hand, since from an installed wheel no config file is read.

    Without `headless` Streamlit opens a browser where there is a screen.

    >>> options(9000)[:2]
    ['--server.port=9000', '--browser.gatherUsageStats=false']
    """
    chosen = {"server.port": port, **OPTIONS, **({"server.headless": True} if headless else {})}
    return [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in chosen.items()]


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
    measuring = Thread(target=_warm_measuring, daemon=True)
    measuring.start()
    try:
        from streamlit.web import cli
    except ImportError as error:
        raise StudioError(f"the app needs {error.name}: pip install 'pattern-studio[app]'") from error
    warm()
    measuring.join()  # else torch would load while the first page is drawn, and both would crawl
    script = Path(__file__).parent / "entry" / "studio.py"
    print(f"Pattern Studio: http://localhost:{chosen.port}  (Ctrl+C stops it)", flush=True)
    cli.main(["run", str(script), *options(chosen.port, chosen.headless)], prog_name="streamlit")


def warm() -> None:
    """Load what the first page needs, and draw its map once, so that no visitor waits for that."""
    from pattern_studio import lower
    from pattern_studio.metrics import layout_stats
    from pattern_studio.plot.colours import LIGHT

    from . import router  # noqa: F401  the pages with all that they import
    from .map_view import map_view
    from .work import Work

    work = Work()
    pattern, problem = work.reading.pattern, work.problem()
    assert pattern is not None  # the app's own preset
    layout_stats(pattern, problem, work.block)
    map_view(lower(pattern, problem, block=work.block), pattern, 0, 0, None, LIGHT)


def _warm_measuring() -> None:
    """Load torch, which takes seconds, beside the server's start: what a pattern keeps is measured with it."""
    from pattern_studio.capture import bundled

    bundled()
