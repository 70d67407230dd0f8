"""The guide's monitoring and memory examples: what a module says of itself was measured, or is None.

python -m gallery.stories.monitoring --tokens 4096
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from attention_core import PlanCache, create_block_sparse_multihead_attention


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print the story and return the stats before, after and the bytes that clearing the cache freed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args(argv)
    attention = create_block_sparse_multihead_attention(
        options.width, 8, sparsity_ratio=0.25, plan_cache=PlanCache(size=8)
    ).eval()
    x = torch.randn(1, options.tokens, options.width, generator=torch.Generator().manual_seed(0))
    before = attention.get_performance_stats()
    print(f"Before a call: {before}")

    log: list[str] = []
    attention.performance_monitor.on_forward(lambda one: log.append(f"{1e3 * one.seconds:.1f} ms, {one.q_len} tokens"))
    attention.performance_monitor.enable()
    with torch.no_grad():
        for _ in range(3):
            attention(x, x, x, need_weights=False)
    attention.performance_monitor.disable()
    print(f"Forwards as a hook logged them: {log}")
    stats = attention.measure(x, x, x, repeats=2)
    print(
        f"Measured: {stats['avg_forward_time_ms']:.1f} ms a forward, {stats['avg_speedup']:.2f} times as fast as "
        f"dense, {stats['block_density']:.3f} of the tiles, {stats['quality_score']:.3f} of the attention mass kept"
    )
    memory = attention.get_memory_info()
    attention.plan_cache.clear()
    freed = memory["plan_bytes"] - attention.get_memory_info()["plan_bytes"]
    print(
        f"Memory: {memory['parameter_bytes']:,} bytes of parameters, {memory['plan_bytes']:,} of plans; clearing the "
        f"cache frees {freed:,}. 1 / block density would be {memory['theoretical_speedup']:.2f}, which is no time."
    )
    return {"before": before, "stats": stats, "log": log, "freed": freed}


if __name__ == "__main__":
    main()
