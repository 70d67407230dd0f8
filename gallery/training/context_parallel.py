"""Train a small causal language model whose sequence is sharded over processes, with gradients compressed or not.

    python -m gallery.training.context_parallel --ranks 2 --steps 20 --gradients powersgd

Every rank holds a part of each sequence; attention fetches the keys that its rows read. Parameters
are replicated and DDP averages their gradients over the ranks, whole or through torch's own hooks that
compress them; or FSDP2 shards them ("sharded").
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import pattern_studio as ps
from attention_core.distributed import DistributedPlan, DistributedSparseConfig, distributed_plan
from attention_core.distributed import distributed_block_sparse_attention as attend

TEXT = Path(__file__).parents[2] / "LICENSE"
PATTERN = "causal & (window(63, 0) | sink(4))"
WIDTH, HEADS, LENGTH, BATCH = 32, 4, 256, 4
LEARNING_RATE = 3e-3
COMPRESSION = {
    "whole": DistributedSparseConfig(),
    "fp16": DistributedSparseConfig(half_precision_gradients=True),
    "powersgd": DistributedSparseConfig(enable_gradient_compression=True, compression_ratio=0.5),
}


class Model(nn.Module):
    """Bytes in, bytes out: embeddings, one block of sharded attention and one of feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, text: Tensor, positions: Tensor, plan: DistributedPlan, group: dist.ProcessGroup) -> Tensor:
        """Logits [batch, local length, 256] of text [batch, local length], which stands at `positions`."""
        x = self.bytes(text) + self.places(positions)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # [batch, heads, ...]
        x = x + self.out(attend(q, k, v, plan, group).transpose(1, 2).flatten(2))
        return self.head(x + self.feed(x))


def batches(positions: Tensor, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(bytes, next bytes) at a rank's positions, int64 [batch, local length] both, of the same sequences on all ranks.

    >>> next(batches(torch.arange(10), 1))[0].shape
    torch.Size([4, 10])
    """
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    order = torch.Generator().manual_seed(1)
    for _ in range(steps):
        first = torch.randint(len(text) - LENGTH, (BATCH, 1), generator=order)
        yield text[first + positions], text[first + positions + 1]


def plan_of(rank: int, ranks: int, pattern: str = PATTERN, device: torch.device | str | None = None) -> DistributedPlan:
    """A rank's part of the model's pattern, to run on `device`."""
    layout = ps.lower(ps.parse(pattern), q_len=LENGTH, block=16, heads=HEADS)
    plan = distributed_plan(layout, ranks, rank, device=device)
    if rank == 0:
        print(plan)
    return plan


def mean_over(loss: Tensor, group: dist.ProcessGroup) -> float:
    """The mean of the ranks' losses, which hold as many tokens each."""
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.SUM, group)
    return mean.item() / dist.get_world_size(group)


def train(group: dist.ProcessGroup, steps: int, gradients: str, pattern: str = PATTERN) -> list[float]:
    """One rank's loop: the mean loss over all ranks of each step."""
    torch.manual_seed(0)
    model = wrapped(Model(), group, gradients)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    plan = plan_of(dist.get_rank(group), dist.get_world_size(group), pattern)
    losses = []
    for text, following in batches(plan.query_positions, steps):
        logits = model(text, plan.query_positions, plan, group)
        loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean_over(loss, group))
    return losses


def wrapped(model: Model, group: dist.ProcessGroup, gradients: str) -> nn.Module:
    """The model as its gradients are to travel."""
    if gradients == "sharded":
        fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
        return model
    parallel = DistributedDataParallel(model, process_group=group)
    COMPRESSION[gradients].compress_gradients(parallel)
    return parallel


def work(rank: int, ranks: int, steps: int, gradients: str, store: str, pattern: str = PATTERN) -> None:
    """A process of this script: rank 0 prints the losses."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    assert dist.group.WORLD is not None
    losses = train(dist.group.WORLD, steps, gradients, pattern)
    if rank == 0:
        print("\n".join(f"step {step}: loss {loss:.4f}" for step, loss in enumerate(losses)))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gradients", choices=[*COMPRESSION, "sharded"], default="whole")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.ranks, options.steps, options.gradients, str(Path(folder) / "store"))
        spawn(work, arguments, options.ranks)


if __name__ == "__main__":
    main()
