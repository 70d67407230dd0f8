"""Start the app: what `pattern-studio app` runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from .theme import OPTIONS


def options(port: int) -> list[str]:
    """Streamlit's command-line options. All are passed by hand, since from an installed wheel no config file is read.

    >>> options(9000)[:2]
    ['--server.port=9000', '--browser.gatherUsageStats=false']
    """
    shown = {"server.port": port, **OPTIONS}
    return [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in shown.items()]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve Pattern Studio on http://localhost:8501, to this machine only, until it is stopped.

    `--port` chooses another port.
    """
    parser = argparse.ArgumentParser(prog="pattern-studio app", description="Open Pattern Studio in the browser.")
    parser.add_argument("--port", type=int, default=8501, help="on this machine (8501)")
    port = parser.parse_args(argv).port
    if not 1 <= port <= 65535:
        parser.error(f"--port takes a number from 1 to 65535, got {port}")

    from streamlit.web import cli

    script = Path(__file__).parent / "entry" / "studio.py"
    print(f"Pattern Studio: http://localhost:{port}  (Ctrl+C stops it)", flush=True)
    cli.main(["run", str(script), *options(port)], prog_name="streamlit")
