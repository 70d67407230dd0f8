"""The training script of the gallery: sharded equals whole, and compressed gradients still train."""

from __future__ import annotations

import pytest

from . import work


@pytest.fixture(scope="module")
def alone(four_ranks) -> list[float]:
    losses = four_ranks.run(work.trained, 1, 5, "whole")[0]
    assert len(losses) == 5
    assert losses[-1] < losses[0] - 0.5
    return losses


@pytest.mark.parametrize("gradients", ["whole", "sharded"])
def test_two_ranks_train_as_one_does(four_ranks, alone, gradients):
    for losses in four_ranks.run(work.trained, 2, 5, gradients):
        assert losses == pytest.approx(alone, abs=2e-4)


@pytest.mark.parametrize("gradients", ["fp16", "powersgd"])
def test_compressed_gradients_train(four_ranks, gradients):
    losses = four_ranks.run(work.trained, 2, 5, gradients)[0]
    assert losses[-1] < losses[0] - 0.4


def test_the_guides_hierarchy_trains(four_ranks):
    from gallery.training.hierarchical import pattern

    losses = four_ranks.run(work.trained, 4, 5, "powersgd", pattern(4, 2))[0]
    assert losses[-1] < losses[0] - 0.3
