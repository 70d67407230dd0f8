"""The gallery's LightningModule, trained by the real Trainer."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, loggers and its own dependencies


def test_a_language_model_learns_and_logs_what_was_measured():
    from gallery.training.lightning_model import main  # here: importing Lightning warns, too

    found = main([])
    assert len(found["losses"]) == 50
    assert found["losses"][0] > 1.9
    assert found["losses"][-1] < 1.0
    assert 0 < found["logged"]["train/block_density"] <= 0.5
    assert found["logged"]["train/forward_ms"] > 0
