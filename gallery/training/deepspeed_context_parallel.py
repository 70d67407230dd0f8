"""DeepSpeed trains the small model of context_parallel with its sequence sharded over processes and ZeRO's shards.

    python -m gallery.training.deepspeed_context_parallel --ranks 2 --steps 20 --stage 2

It needs `pip install deepspeed`, which compiles a small operator the first time (g++ and ninja). ZeRO shards optimizer
states (stage 1) and gradients (stage 2) over the same ranks that hold the sequence's parts; gradients are averaged over
them as DDP does. Here processes of the CPU are joined by gloo.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn import functional

from .context_parallel import LEARNING_RATE, Model, batches, mean_over, plan_of


def train(group: dist.ProcessGroup, steps: int, stage: int) -> list[float]:
    """One rank's loop with DeepSpeed's engine: the mean loss over all ranks of each step."""
    import deepspeed  # here: the rest of the gallery does without

    torch.manual_seed(0)
    model = Model()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE),
        dist_init_required=False,
        config={
            "train_micro_batch_size_per_gpu": 1,  # what the engine is told; it never looks at a batch
            "zero_optimization": {"stage": stage},
        },
    )
    plan = plan_of(dist.get_rank(group), dist.get_world_size(group))
    losses = []
    for text, following in batches(plan.query_positions, steps):
        logits = engine(text, plan.query_positions, plan, group)
        loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        engine.backward(loss)
        engine.step()
        losses.append(mean_over(loss, group))
    return losses


def work(rank: int, ranks: int, steps: int, stage: int, store: str, out: str) -> None:
    """A process of this script: rank 0 writes and prints the losses."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # DeepSpeed asks the environment who it is, and for its accelerator.
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    import deepspeed

    where = {"init_method": f"file://{store}", "rank": rank, "world_size": ranks}
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, **where)
    assert dist.group.WORLD is not None
    losses = train(dist.group.WORLD, steps, stage)
    if rank == 0:
        text = "\n".join(f"step {step}: loss {loss:.4f}" for step, loss in enumerate(losses))
        Path(out).write_text(text + "\n")
        print(text)
    dist.destroy_process_group()


def main(argv: list[str] | None = None) -> list[float]:
    """Train and return the losses that rank 0 wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--stage", type=int, choices=(0, 1, 2), default=2)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "losses"
        arguments = (options.ranks, options.steps, options.stage, str(Path(folder) / "store"), str(out))
        spawn(work, arguments, options.ranks)
        return [float(line.split()[-1]) for line in out.read_text().splitlines()]


if __name__ == "__main__":
    main()
