"""DistributedSparseConfig: density by level of a cluster, and gradient compression, by the guide's names."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import pattern_studio as ps
from pattern_studio.errors import StudioError
from pattern_studio.problem import whole

STEPS = 20  # densities are kept as whole units of so many


@dataclass(frozen=True)
class DistributedSparseConfig:
    """A hierarchical pattern and the compression of gradients, for training over many devices.

    The three densities are fractions that are *kept* (the guide calls them sparsity): of the keys on a
    query's own device, on its node, and beyond, in steps of 1/20. `enable_load_balancing` deals tokens
    out so that every device computes as many pairs, at the price of locality; without it each device
    holds one stretch, and traffic follows the densities. With `enable_gradient_compression` gradients
    that PowerSGD (Vogels et al. 2019, arXiv:1905.13727) shrinks to `compression_ratio` or less travel
    so, the others whole; `half_precision_gradients` halves them instead.

    >>> config = DistributedSparseConfig(local_sparsity=0.5, global_sparsity=0.2, inter_node_sparsity=0.05)
    >>> config.pattern(tokens=2**20, devices=64, devices_per_node=8) == ps.mesh_levels(2**14, 2**17, (10, 4, 1))
    True
    """

    pattern_type: str = "hierarchical"
    local_sparsity: float = 0.5
    global_sparsity: float = 0.2
    inter_node_sparsity: float = 0.05
    block_size: int = 128
    enable_load_balancing: bool = False
    enable_gradient_compression: bool = False
    compression_ratio: float = 0.1
    half_precision_gradients: bool = False

    def __post_init__(self) -> None:
        if self.pattern_type != "hierarchical":
            raise StudioError(
                f"pattern_type must be 'hierarchical', got {self.pattern_type!r}; any other pattern is a Pattern: "
                "lower it and pass the layout to distributed_plan()"
            )
        whole("block_size", self.block_size, 1, 65536)
        for name in ("local_sparsity", "global_sparsity", "inter_node_sparsity"):
            _units(name, getattr(self, name))
        if not isinstance(self.compression_ratio, float) or not 0 < self.compression_ratio < 1:
            raise StudioError(
                f"compression_ratio must lie between 0 and 1, such as 0.1 for a tenth; got {self.compression_ratio!r}"
            )
        if self.enable_gradient_compression and self.half_precision_gradients:
            raise StudioError("choose one of enable_gradient_compression and half_precision_gradients, got both")

    @property
    def way(self) -> str:
        """How `distributed_plan` is to deal tokens out."""
        return "auto" if self.enable_load_balancing else "contiguous"

    def pattern(self, tokens: int, devices: int, devices_per_node: int) -> ps.Pattern:
        """The pattern for a sequence of `tokens` over so many devices; they must divide evenly into blocks."""
        whole("devices", devices, 1)
        whole("devices_per_node", devices_per_node, 1)
        if devices % devices_per_node:
            raise StudioError(f"{devices} devices do not make whole nodes of {devices_per_node}; correct one")
        if whole("tokens", tokens, 1) % (devices * self.block_size):
            raise StudioError(
                f"{tokens} tokens do not divide into {devices} devices of whole blocks of {self.block_size}; "
                f"pad to {-(-tokens // (devices * self.block_size)) * devices * self.block_size}"
            )
        device = tokens // devices
        named = ("local_sparsity", "global_sparsity", "inter_node_sparsity")
        first, second, third = (_units(name, getattr(self, name)) for name in named)
        return ps.mesh_levels(device, device * devices_per_node, (first, second, third), STEPS, self.block_size)

    def compress_gradients(self, model: DistributedDataParallel) -> None:
        """Register torch's own communication hook on a DDP model, as the settings say."""
        if self.half_precision_gradients:
            model.register_comm_hook(model.process_group, default_hooks.fp16_compress_hook)
        elif self.enable_gradient_compression:
            state = powerSGD_hook.PowerSGDState(
                process_group=model.process_group,
                matrix_approximation_rank=1,
                start_powerSGD_iter=2,
                min_compression_rate=round(1 / self.compression_ratio),
            )
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _units(name: str, density: object) -> int:
    if isinstance(density, bool) or not isinstance(density, (int, float)) or not 0 <= density <= 1:
        raise StudioError(f"{name} is the fraction that is kept, from 0 to 1, got {density!r}")
    units = float(density) * STEPS
    if abs(units - round(units)) > 1e-9:
        raise StudioError(f"{name} is kept in steps of 1/{STEPS}, got {density}; take {round(units) / STEPS}")
    return round(units)
