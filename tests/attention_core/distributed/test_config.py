"""DistributedSparseConfig: the pattern that it means, what crosses the links, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import pattern_studio as ps
from attention_core.distributed import DistributedSparseConfig, needs

CONFIG = DistributedSparseConfig(local_sparsity=0.5, global_sparsity=0.2, inter_node_sparsity=0.05, block_size=16)


def test_density_by_level():
    tokens, devices = 16 * 20 * 16, 8
    pattern, device = CONFIG.pattern(tokens, devices, 4), tokens // devices
    mask = ps.dense_mask(pattern, ps.Problem(tokens))[0]
    i, j = np.indices((tokens, tokens), sparse=True)
    same_device, same_node = i // device == j // device, i // (4 * device) == j // (4 * device)
    # A device holds two periods of 20 units, so the share of any other device's keys is exact.
    assert mask[same_node & ~same_device & (j < i)].mean() == pytest.approx(0.2, abs=1e-9)
    assert mask[~same_node & (j < i)].mean() == pytest.approx(0.05, abs=1e-9)
    last_row = mask[device - 1, :device].reshape(40, 16)  # half of all 40 units, its own among them
    assert last_row.all(1).sum() == 20
    assert last_row.any(1).sum() == 20
    assert mask.diagonal().all()


def test_traffic_follows_the_densities():
    tokens, devices = 16 * 20 * 16, 8
    layout = ps.lower(CONFIG.pattern(tokens, devices, 4), q_len=tokens, block=16)
    sent = needs(layout, devices, 1, CONFIG.way).keys_between / (tokens // devices)
    assert sent[0, 1:4] == pytest.approx([0.2] * 3)
    assert sent[0, 4:] == pytest.approx([0.05] * 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pattern_type": "ring"}, "pattern_type must be 'hierarchical', got 'ring'; any other pattern is a Pattern"),
        ({"local_sparsity": 1.5}, "local_sparsity is the fraction that is kept, from 0 to 1, got 1.5"),
        ({"global_sparsity": 0.21}, "steps of 1/20, got 0.21; take 0.2"),
        ({"block_size": 0}, "block_size must lie between 1"),
        ({"compression_ratio": 2}, "compression_ratio must lie between 0 and 1"),
        ({"enable_gradient_compression": True, "half_precision_gradients": True}, "choose one of"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ps.StudioError, match=message):
        DistributedSparseConfig(**settings)


def test_sizes_are_checked():
    with pytest.raises(ps.StudioError, match="6 devices do not make whole nodes of 4"):
        CONFIG.pattern(4096, 6, 4)
    with pytest.raises(ps.StudioError, match="do not divide into 8 devices of whole blocks of 16; pad to 5120"):
        CONFIG.pattern(5000, 8, 4)
    with pytest.raises(ps.StudioError, match="must not rise with the distance"):
        DistributedSparseConfig(local_sparsity=0.1, global_sparsity=0.2).pattern(4096, 8, 4)


def test_the_guides_example_as_it_stands():
    guide = DistributedSparseConfig(
        pattern_type="hierarchical", local_sparsity=0.5, global_sparsity=0.2, inter_node_sparsity=0.05,
        enable_load_balancing=True, enable_gradient_compression=True, compression_ratio=0.1,
    )  # fmt: skip
    assert guide.way == "auto"
    assert guide.pattern(2**20, 64, 8) == ps.mesh_levels(2**14, 2**17, (10, 4, 1))
