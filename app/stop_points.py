"""Points where a thread's work can be broken off without its knowing of it: the calls that it is made of."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pattern_studio

OURS = str(Path(pattern_studio.__file__).parent)
# A generator that goes on may do so to tidy up, as what enters or leaves a `with` does: neither is broken off.
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_TIDYING = ("__enter__", "__exit__", "__del__")


@contextmanager
def calls_of_ours(check: Callable[[], None]) -> Iterator[None]:
    """Inside, `check` is called on this thread before any function of pattern_studio begins, until it raises.

    Work that lowers, measures or exports is made of such calls, most of them milliseconds of numpy or torch. Where they
    are many and small it takes longer for that: checking five exports .31 s for .22, measuring attention no more.
    """

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(OURS) and not code.co_flags & _GENERATOR and code.co_name not in _TIDYING:
                check()  # what it raises goes on in the work, and Python looks no more

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)
