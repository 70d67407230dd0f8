"""Small arrays gain nothing from a second thread, and lose much where tests run side by side."""

from __future__ import annotations

import pytest
import torch

from tests import strategies

__all__ = ["strategies"]  # imported for its profile: a busy machine is no failure


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
