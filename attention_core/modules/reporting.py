"""Reporting: what every module here can be asked and told: densities, measured times, bytes, another budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout

from .config import SparsePatternConfig
from .plan_cache import PlanCache
from .source import PatternSource
from .stats import PerformanceMonitor, densities, plan_bytes, timed


class Reporting:
    """Mixed into modules that have a `source` and compute `(output, lse)` with any source in `_compute`."""

    source: PatternSource
    performance_monitor: PerformanceMonitor
    _compute: Callable[..., tuple[Tensor, Tensor]]

    @property
    def plan_cache(self) -> PlanCache:
        """Where this module's plans are kept; `plan_cache.clear()` frees them, `plan_cache.info()` counts."""
        return self.source.cache

    @property
    def sparse_config(self) -> SparsePatternConfig | None:
        """The budget that the module was made with, None where it has a pattern of its own."""
        given = self.source.given
        return given if isinstance(given, SparsePatternConfig) else None

    def set_density(self, density: float) -> None:
        """Keep another share of the tiles from the next call on, in the family the module was made with.

        Raises StudioError where the module has a pattern instead of a budget.
        """
        config = self.sparse_config
        if config is None:
            raise StudioError(
                f"this module's pattern is {self.source.given}, which has no budget to change; make it with "
                "pattern=SparsePatternConfig(...), or give it another pattern with set_pattern()"
            )
        self.source.change(config.with_density(density))

    def set_sparsity_ratio(self, sparsity_ratio: float) -> None:
        """The guide's name for set_density: the fraction that is *kept*."""
        self.set_density(sparsity_ratio)

    def set_pattern(self, pattern: Any) -> None:
        """Use another pattern, its text, or a SparsePatternConfig from the next call on."""
        self.source.change(pattern)

    def measure(self, *inputs: Tensor, repeats: int = 5, **options: Any) -> dict[str, Any]:
        """Run this module on inputs as it is and densely, and keep what was found for get_performance_stats().

        The arguments are forward's. Speed-up is the dense forward's median time over this one's, of
        `repeats` runs each, without gradients; quality is the mean mass recall over heads and rows, the
        dense softmax probability that the pattern keeps, `exp(lse - dense lse)`. The dense run obeys the
        same padding, documents and causality.
        """
        dense = PatternSource("dense", block=self.source.block, cache=PlanCache(2))
        device = inputs[0].device
        with torch.no_grad():
            mine, whole = (self._compute(s, *inputs, **options)[1].double() for s in (self.source, dense))
            seconds, dense_seconds = (
                timed(lambda s=s: self._compute(s, *inputs, **options), device, repeats) for s in (self.source, dense)
            )
        seen = whole > -torch.inf
        monitor = self.performance_monitor
        monitor.quality = float((mine[seen] - whole[seen]).exp().mean()) if bool(seen.any()) else None
        monitor.speedup = dense_seconds / seconds
        return self.get_performance_stats()

    def get_performance_stats(self) -> dict[str, Any]:
        """What is known of this module's runs; None where nothing was measured.

        forwards, avg_forward_time_ms: forwards since `performance_monitor.enable()`; token_density and
        block_density: shares kept of all pairs and tiles in the last call; avg_speedup and
        quality_score: from the last `measure()`; plan_hits and plan_misses: of the plan cache, which
        other modules may share.
        """
        monitor, layout, cache = self.performance_monitor, self._latest_layout(), self.plan_cache.info()
        return {
            "forwards": monitor.forwards,
            "avg_forward_time_ms": 1e3 * monitor.seconds / monitor.forwards if monitor.forwards else None,
            **({"token_density": None, "block_density": None} if layout is None else densities(layout)),
            "avg_speedup": monitor.speedup,
            "quality_score": monitor.quality,
            "plan_hits": cache.hits,
            "plan_misses": cache.misses,
        }

    def get_memory_info(self) -> dict[str, Any]:
        """Bytes that are held now: parameters, and plans in the cache (other modules' too where it is shared).

        `theoretical_speedup` is 1 / block density of the last call: the ratio of tiles, not of times.
        """
        plans = self.plan_cache.plans()
        parameters = self.parameters() if isinstance(self, torch.nn.Module) else ()
        layout = self._latest_layout()
        block_density = None if layout is None else densities(layout)["block_density"]
        return {
            "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
            "plan_bytes": sum(plan_bytes(p) for p in plans),
            "pattern_cache_size": len(plans),
            "theoretical_speedup": 1 / block_density if block_density else None,
        }

    def _latest_layout(self) -> BlockLayout | None:
        """What the last call ran, None before one and where the cache has dropped it."""
        plan = self.source.latest
        return None if plan is None else plan.layout
