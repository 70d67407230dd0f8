"""The app as visitors meet it: started as `pattern-studio app` starts it, and looked at with Chromium."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from pattern_studio import StudioError

WAIT = 90  # seconds, the most for anything: the cores may be shared with other work
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of an app that is started in `folder` on a free port and ended afterwards; its log is there, too.

    Raises:
        StudioError: the app ended or did not answer; with what it wrote.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = f"from pattern_studio_app.launch import main; main(['--port', '{port}', '--headless'])"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-c", start], cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


@contextmanager
def browsers() -> Iterator[Callable[..., BrowserContext]]:
    """Starts a browser for a profile's folder, with a window's width and height and a light or dark `scheme`.

    Two browsers are two visitors. All are closed afterwards.

    Raises:
        StudioError: there is no chromium.
    """
    path = shutil.which("chromium")
    if path is None:
        raise StudioError("expected chromium on the path, found none; apt-get install chromium")
    with sync_playwright() as playwright, ExitStack() as started:

        def launch(profile: Path, width: int = 1280, height: int = 800, scheme: str = "light") -> BrowserContext:
            context = playwright.chromium.launch_persistent_context(
                profile,
                executable_path=path,
                args=FLAGS,
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            started.callback(context.close)
            context.set_default_timeout(1000 * WAIT)
            return context

        yield launch


@contextmanager
def chromium(profile: Path, width: int = 1280, height: int = 800, scheme: str = "light") -> Iterator[BrowserContext]:
    """One browser of `browsers`."""
    with browsers() as launch:
        yield launch(profile, width, height, scheme)


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + WAIT
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise StudioError(f"expected the app to answer at {url} within {WAIT} s; it wrote:\n{log.read_text()}")
