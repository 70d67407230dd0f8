"""How information spreads over layers, computed beside the pages and kept, like what compute.py gives."""

from __future__ import annotations

from concurrent.futures import Future

import streamlit as st

from pattern_studio import StudioError

from .compute import TOO_DEEP, TOO_LARGE
from .jobs import Jobs
from .reach import Spread, spread
from .state import State


@st.cache_resource(show_spinner=False)
def _jobs() -> Jobs[Spread | str]:
    return Jobs(kept=3)  # of up to 64 MiB each


def spread_job(visitor: str, state: State, layers: int, block: int) -> Future[Spread | str]:
    """How information spreads over layers of what is shown, or why that can't be said, on its way.

    Raises:
        StudioError: the problem is none.
    """
    pattern, problem = state.pattern, state.shown.problem()

    def work() -> Spread | str:
        try:
            return spread(pattern, problem, layers, block)
        except StudioError as error:
            return str(error)
        except RecursionError:
            return TOO_DEEP
        except MemoryError:
            return TOO_LARGE

    return _jobs().ask(visitor, (pattern.hash, problem, layers, block), work)
