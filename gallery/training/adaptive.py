"""The guide's second example: attention that learns which tiles matter, trained beside its gate.

    python -m gallery.training.adaptive --steps 200

Every token belongs to a group and is to name the mean of the group's earlier tokens, wherever they stand. The module
keeps, in each row of tiles, the fewest whose *predicted* mass reaches the threshold; a hard choice passes no gradient,
so the gate has a loss of its own, and what the choice really keeps is measured on sequences that no step saw.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from attention_core import create_adaptive_sparse_multihead_attention

GROUPS = 8


def sequences(batch: int, tokens: int, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens [batch, tokens, width] in stretches of one group, and for each the mean of its group so far."""
    centres = torch.randn(GROUPS, width, generator=torch.Generator().manual_seed(9))
    group = torch.randint(GROUPS, (batch, -(-tokens // 16)), generator=generator).repeat_interleave(16, 1)[:, :tokens]
    x = centres[group] + 0.5 * torch.randn(batch, tokens, width, generator=generator)
    own = nn.functional.one_hot(group, GROUPS).to(x.dtype)  # [batch, tokens, groups]
    sums = (own[..., None] * x[:, :, None]).cumsum(1)
    means = sums / own.cumsum(1).clamp(min=1)[..., None]
    return x, means.gather(2, group[..., None, None].expand(-1, -1, 1, width))[:, :, 0]


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train and return losses and what the choice keeps, before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 200), ("tokens", 1024), ("width", 768), ("heads", 12), ("batch", 2), ("block", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threshold", type=float, default=0.95)
    options = parser.parse_args(argv)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        attention = create_adaptive_sparse_multihead_attention(
            embed_dim=options.width,
            num_heads=options.heads,
            quality_threshold=options.threshold,
            block=(options.block, max(options.block // 4, 1)),
        )
    order = torch.Generator().manual_seed(1)
    unseen, _ = sequences(options.batch, options.tokens, options.width, torch.Generator().manual_seed(2))
    gate = list(attention.gate.parameters())
    others = [p for name, p in attention.named_parameters() if not name.startswith("gate.")]
    optimizer = torch.optim.AdamW([{"params": others, "lr": 1e-3}, {"params": gate, "lr": 1e-2}])
    losses, gate_losses = [], []
    for step in range(options.steps):
        x, targets = sequences(options.batch, options.tokens, options.width, order)
        output, _ = attention(x, is_causal=True)
        loss = (output - targets).square().mean()
        gate_loss = attention.gate_loss(x, is_causal=True)
        optimizer.zero_grad()
        (loss + gate_loss).backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        gate_losses.append(float(gate_loss.detach()))
        if step % max(options.steps // 5, 1) == 0:
            kept = attention.measured(unseen, is_causal=True)
            print(
                f"step {step:4} loss {losses[-1]:.4f}, gate {gate_losses[-1]:.4f} nats; unseen text: keeps "
                f"{kept.recall:.3f} of the mass with {kept.block_density:.3f} of the tiles"
            )
    after = attention.measured(unseen, is_causal=True)
    print(
        f"\nAsked for a predicted mass of {options.threshold}: {after.recall:.4f} is kept on unseen sequences, "
        f"{after.recall_p1:.4f} in the worst rows (1st percentile), with {after.block_density:.4f} of the causal tiles"
    )
    return {
        "first loss": losses[0],
        "last loss": losses[-1],
        "first gate loss": gate_losses[0],
        "last gate loss": gate_losses[-1],
        "recall": after.recall,
        "block density": after.block_density,
    }


if __name__ == "__main__":
    main()
