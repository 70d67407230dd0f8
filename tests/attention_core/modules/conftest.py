from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def slow_path():
    """torch's fast path is what some of the reported faults lie in; the slow one is the contract."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)
