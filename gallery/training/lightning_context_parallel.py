"""Lightning trains the small model of context_parallel with its sequence sharded over processes.

    python -m gallery.training.lightning_context_parallel --ranks 2 --steps 20 --gradients powersgd --out losses.json

Lightning starts the processes and wraps the module in DDP; every rank is given the same sequences and takes its own
positions of them, so Lightning's sampler is told to leave the data alone. On GPUs give `--accelerator gpu`: the
processes are then joined by NCCL.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from .context_parallel import COMPRESSION, LEARNING_RATE, Model, batches, mean_over, plan_of


class ShardedLM(lightning.LightningModule):
    """The model, its rank's part of the pattern, and the mean losses over all ranks, written to `out` by rank 0."""

    def __init__(self, steps: int, gradients: str, out: Path) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model, self.steps, self.gradients, self.out = Model(), steps, gradients, out
        self.losses: list[float] = []

    def setup(self, stage: str) -> None:
        """The group exists from here on, and with it the rank."""
        device = self.trainer.strategy.root_device
        self.plan = plan_of(self.global_rank, self.trainer.world_size, device=device)
        self.positions = self.plan.query_positions

    def train_dataloader(self) -> DataLoader:
        """Batches as they are: the module made them for its rank."""
        return DataLoader(list(batches(self.positions, self.steps)), batch_size=None, shuffle=False)

    def on_train_start(self) -> None:
        """Gradients travel whole, in half precision, or as PowerSGD makes them."""
        COMPRESSION[self.gradients].compress_gradients(self.trainer.strategy.model)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The loss of this rank's positions; DDP averages the gradients."""
        text, following = batch
        group = dist.group.WORLD
        assert group is not None
        logits = self.model(text, self.positions.to(text.device), self.plan, group)
        loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        self.losses.append(mean_over(loss, group))
        return loss

    def on_train_end(self) -> None:
        """What was learned, for whoever started the processes."""
        if self.global_rank == 0:
            self.out.write_text(json.dumps(self.losses))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over everything."""
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE)


def main(argv: list[str] | None = None) -> list[float]:
    """Train and return the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gradients", choices=COMPRESSION, default="whole")
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator=options.accelerator,
        devices=options.ranks,
        strategy=DDPStrategy(
            start_method="spawn", process_group_backend="gloo" if options.accelerator == "cpu" else "nccl"
        ),
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ShardedLM(options.steps, options.gradients, options.out))
    losses = json.loads(options.out.read_text())
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    return losses


if __name__ == "__main__":
    main()
