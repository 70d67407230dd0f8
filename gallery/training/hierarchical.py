"""The guide's distributed example: dense on a device, sparser on its node, very sparse beyond, gradients compressed.

    python -m gallery.training.hierarchical --ranks 4 --per-node 2 --steps 20

Processes of this machine stand for devices, each with its part of every sequence; attention fetches only the keys that
the hierarchy lets its rows read. With NCCL and one GPU a rank the same calls run on a cluster.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from torch.multiprocessing.spawn import spawn

from attention_core.distributed import DistributedSparseConfig

from .context_parallel import LENGTH, work

CONFIG = DistributedSparseConfig(
    local_sparsity=0.5,  # these are fractions that are kept
    global_sparsity=0.2,
    inter_node_sparsity=0.05,
    block_size=1,
    enable_gradient_compression=True,
    compression_ratio=0.5,
)


def pattern(ranks: int, per_node: int) -> str:
    """The hierarchy over the ranks, causal, as text.

    >>> pattern(4, 2).startswith("causal & ")
    True
    """
    return f"causal & ({CONFIG.pattern(LENGTH, ranks, per_node)})"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--per-node", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args(argv)
    text = pattern(options.ranks, options.per_node)
    print(text)
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.ranks, options.steps, "powersgd", str(Path(folder) / "store"), text)
        spawn(work, arguments, options.ranks)


if __name__ == "__main__":
    main()
