"""`pattern-studio app`: the Studio in the browser."""

from __future__ import annotations

import argparse

from ..errors import StudioError

ABOUT = "open Pattern Studio in the browser"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=8501, help="the local port (8501)")


def run(options: argparse.Namespace) -> None:
    try:
        from pattern_studio_app.launch import main as launch
    except ModuleNotFoundError as error:
        raise StudioError(f"the app needs {error.name}: pip install 'pattern-studio[app]'") from None
    launch(["--port", str(options.port)])
