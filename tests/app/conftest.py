"""The real app and a real browser, for the tests that drive it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

WAIT = 90  # seconds, the most for anything: two slow cores may be shared with other tests
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app, started as `pattern-studio app` starts it, in an empty folder on a free port; ended afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("app")
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


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the app did not answer at {url}:\n{log.read_text()}")


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], BrowserContext]]:
    """Starts browsers, each with a profile of its own: two of them are two visitors."""
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("expected chromium for the browser tests, found none; apt-get install chromium")
    with sync_playwright() as playwright:
        contexts: list[BrowserContext] = []

        def launch() -> BrowserContext:
            context = playwright.chromium.launch_persistent_context(
                tmp_path_factory.mktemp("profile"),
                executable_path=path,
                args=FLAGS,
                viewport={"width": 1280, "height": 800},
            )
            context.set_default_timeout(1000 * WAIT)
            contexts.append(context)
            return context

        expect.set_options(timeout=1000 * WAIT)
        yield launch
        for context in contexts:
            context.close()


@pytest.fixture(scope="module")
def browser(launched: Callable[[], BrowserContext]) -> BrowserContext:
    return launched()


@pytest.fixture
def page(browser: BrowserContext) -> Iterator[Page]:
    fresh = browser.new_page()
    yield fresh
    assert fresh.locator(".stException").count() == 0, fresh.locator(".stException").first.inner_text()
    fresh.close()
