"""Lightning and DeepSpeed around sharded attention: their real engines train as one process does."""

from __future__ import annotations

import importlib.util

import pytest

from . import work

STEPS = 5
# Advice on workers and loggers, and deprecations of the frameworks' own dependencies.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def alone(four_ranks) -> list[float]:
    return four_ranks.run(work.trained, 1, STEPS, "whole")[0]


@pytest.fixture(autouse=True)
def on_this_machine(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_lightning_trains_sharded_as_one_process_does(alone, tmp_path):
    """With gradients in half precision on their way, by torch's own hook: they round, and change little."""
    from gallery.training.lightning_context_parallel import main  # here: importing Lightning warns, too

    out = str(tmp_path / "losses.json")
    losses = main(["--ranks", "2", "--steps", str(STEPS), "--gradients", "fp16", "--out", out])
    assert losses == pytest.approx(alone, abs=5e-3)
    assert losses[-1] < losses[0] - 0.4


@pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="DeepSpeed is not installed: it compiles on installation, so the test extra leaves it out; see the README",
)
def test_deepspeed_trains_sharded_as_one_process_does(alone):
    from gallery.training.deepspeed_context_parallel import main

    losses = main(["--ranks", "2", "--steps", str(STEPS), "--stage", "2"])
    assert losses == pytest.approx(alone, abs=2e-3)
