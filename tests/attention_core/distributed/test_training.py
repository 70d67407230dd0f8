"""The training script of the gallery: sharded equals whole, and compressed gradients still train."""

from __future__ import annotations

import pytest

from gallery.training.context_parallel import run


def test_two_ranks_train_as_one_does():
    one, two = run(1, 5), run(2, 5)
    assert len(one) == 5
    assert two == pytest.approx(one, abs=2e-4)
    assert one[-1] < one[0] - 0.5


@pytest.mark.parametrize("gradients", ["fp16", "powersgd"])
def test_compressed_gradients_train(gradients):
    losses = run(2, 5, gradients)
    assert losses[-1] < losses[0] - 0.4
