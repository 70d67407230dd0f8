"""The real app and a real browser, for the tests that drive it, and a look at what is left behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from benchmarks.served import WAIT, browsers, served


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app, started as `pattern-studio app` starts it, in an empty folder on a free port; ended afterwards."""
    with served(tmp_path_factory.mktemp("app")) as address:
        yield address


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], BrowserContext]]:
    """Starts browsers, each with a profile of its own: two of them are two visitors."""
    expect.set_options(timeout=1000 * WAIT)
    with browsers() as launch:
        yield lambda: launch(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def browser(launched: Callable[[], BrowserContext]) -> BrowserContext:
    return launched()


@pytest.fixture
def page(browser: BrowserContext) -> Iterator[Page]:
    fresh = browser.new_page()
    yield fresh
    assert fresh.locator(".stException").count() == 0, fresh.locator(".stException").first.inner_text()
    fresh.close()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Nothing of ours is left in the folder for temporary files."""
    before = set(os.listdir(tempfile.gettempdir()))
    yield
    left = {name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith("pattern-studio")}
    assert not left
