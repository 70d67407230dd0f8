"""Train one small causal language model three times: dense, under a static pattern at 10 %, and with adaptive tiles.

    python -m gallery.training.language_model --out FOLDER

The three start from the same weights and read the same batches of the same text: the sources of the running Python's
standard library, byte by byte; nothing is downloaded. On a GPU: 7 million parameters, a context of 8,192, bfloat16, a
few minutes. On a CPU: smaller, to see that it works. Each takes one step before any is trained, so what cannot run
says so at once. Writes DATE-language-model-DEVICE.json and .svg into FOLDER, anew after each: losses on the text and on
a part of it that is held out, tokens a second, the time of one attention module, the densities that were run, the
machine and the date.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import statistics
import sysconfig
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention_core import AdaptiveBlockSparseMultiheadAttention, BlockSparseMultiheadAttention, SparsePatternConfig
from pattern_studio import StudioError

from .curves import curves

DENSITY = 0.10  # share of the causal triangle's tiles that both sparse models keep
GATE_EVERY = 8  # steps between two of the gate's own; each costs a dense q k product of one sequence
HELD_OUT = 20  # the last 1/20 of the text
SKIPPED = 5  # steps before times are counted: kernels are compiled in them


@dataclass(frozen=True)
class Size:
    """What is trained, and for how long. `block` is in tokens, `text` in bytes."""

    context: int = 8192
    width: int = 256
    heads: int = 4
    layers: int = 6
    batch: int = 4
    steps: int = 800
    block: int = 64
    text: int = 16_000_000
    lr: float = 1e-3


ON_CPU = Size(context=1024, width=64, heads=2, layers=2, batch=2, steps=200, block=16, text=1_000_000, lr=3e-3)


class Dense(nn.MultiheadAttention):
    """nn.MultiheadAttention's weights under torch's own causal scaled_dot_product_attention, the baseline."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:  # type: ignore[override]
        """x [batch, length, embed_dim], always causal."""
        made = functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = made.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).flatten(2)), None


def dense(size: Size) -> nn.MultiheadAttention:
    """Every pair of the causal triangle."""
    return Dense(size.width, size.heads, batch_first=True)


def static(size: Size) -> nn.MultiheadAttention:
    """First tokens and a window, as much as the density pays for."""
    config = SparsePatternConfig(
        "global_local", density=DENSITY, block_size=size.block, global_tokens=min(size.block, 64)
    )
    return BlockSparseMultiheadAttention(size.width, size.heads, batch_first=True, pattern=config)


def adaptive(size: Size) -> nn.MultiheadAttention:
    """The tiles that a gate chooses from each input."""
    return AdaptiveBlockSparseMultiheadAttention(size.width, size.heads, density=DENSITY, block=size.block)


ARMS: dict[str, Callable[[Size], nn.MultiheadAttention]] = {"dense": dense, "static": static, "adaptive": adaptive}


class Block(nn.Module):
    """A pre-norm transformer block around an attention module."""

    def __init__(self, attention: nn.MultiheadAttention, width: int) -> None:
        super().__init__()
        self.attention, self.norm, self.feed_norm = attention, nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.seen: Tensor | None = None  # what the attention was given last, for the gate's own loss

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, length, width] to the same."""
        given = self.norm(x)
        self.seen = given.detach()
        x = x + self.attention(given, given, given, need_weights=False, is_causal=True)[0]
        return x + self.feed(self.feed_norm(x))


class Model(nn.Module):
    """Bytes in, logits of the next byte out; the same initial weights whatever the attention."""

    def __init__(self, size: Size, arm: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bytes, self.places = nn.Embedding(256, size.width), nn.Embedding(size.context, size.width)
        nn.init.normal_(self.bytes.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(ARMS[arm](size), size.width) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 256)

    def forward(self, text: Tensor) -> Tensor:
        """Logits [batch, length, 256] of text int64 [batch, length]."""
        x = self.bytes(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def stdlib(limit: int) -> Tensor:
    """The first `limit` bytes of the standard library's modules, in alphabetical order, uint8 on the host."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    told, total = [], 0
    for file in sorted(folder.rglob("*.py")):
        if {"site-packages", "dist-packages", "test", "tests", "__pycache__"} & set(file.relative_to(folder).parts):
            continue
        told.append(file.read_bytes())
        total += len(told[-1])
        if total >= limit:
            break
    return torch.frombuffer(bytearray(b"".join(told)[:limit]), dtype=torch.uint8)


def batch(text: Tensor, size: Size, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """Sequences and their next bytes, int64 [batch, context] each."""
    first = torch.randint(len(text) - size.context, (size.batch, 1), generator=generator)
    at = first + torch.arange(size.context + 1)
    got = text[at].to(device, torch.int64)
    return got[:, :-1], got[:, 1:]


def train(arm: str, size: Size, text: Tensor, device: torch.device, told: Callable[[str], object] = print) -> dict:
    """One arm from the first step to the last; what it did as plain values. StudioError where a loss is no number."""
    model = Model(size, arm).to(device)
    gates = [block.attention.gate for block in model.blocks if arm == "adaptive"]
    theirs = {id(p) for gate in gates for p in gate.parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if id(p) not in theirs], lr=size.lr, weight_decay=0.1)
    tuner = torch.optim.AdamW([p for gate in gates for p in gate.parameters()], lr=3e-3) if gates else None
    warm = max(size.steps // 20, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / warm, 0.55 + 0.45 * math.cos(math.pi * n / size.steps))
    )
    cut = len(text) - len(text) // HELD_OUT
    order = torch.Generator().manual_seed(1)  # the same batches for every arm
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    losses, gate_losses, seconds = [], [], []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for step in range(size.steps):
        inputs, targets = batch(text[:cut], size, order, device)
        _wait(device)
        begin = time.perf_counter()
        with half:
            loss = functional.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if tuner is not None and step % GATE_EVERY == 0:
            gate_losses.append((step, tuned(model, tuner)))
        _wait(device)
        seconds.append(time.perf_counter() - begin)
        losses.append(float(loss.detach()))
        for value in (losses[-1], *(one for _, one in gate_losses[-1:])):
            if not math.isfinite(value):
                raise StudioError(f"at step {step} a loss of {arm} is {value}, nothing to go on from: lower --lr")
        if step % max(size.steps // 10, 1) == 0:
            told(f"{arm:9} step {step:5} loss {losses[-1]:.4f}")
    counted = seconds[min(SKIPPED, len(seconds) - 1) :]
    # A step of the gate's own takes longer: the mean counts it, a median would not.
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": losses,
        "gate_losses": gate_losses,
        "held_out_loss": held_out(model, text[cut:], size, device, half),
        "tokens_per_second": size.batch * size.context / statistics.fmean(counted),
        "median_step_ms": 1e3 * statistics.median(counted),
        "attention_ms": attention_ms(model, half, device),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        **densities(model, size),
    }


def tuned(model: Model, tuner: torch.optim.Optimizer) -> float:
    """A step of the gates towards the dense block mass of one sequence; nats, the mean over layers."""
    tuner.zero_grad(set_to_none=True)
    parts = [block.attention.gate_loss(block.seen[:1], is_causal=True) for block in model.blocks]
    loss = torch.stack(parts).mean()
    loss.backward()
    tuner.step()
    return float(loss.detach())


@torch.no_grad()
def held_out(model: Model, text: Tensor, size: Size, device: torch.device, half: torch.autocast) -> float:
    """Mean loss in nats a byte over eight batches of text that no step saw, the same for every arm."""
    order, found = torch.Generator().manual_seed(2), []
    for _ in range(8):
        inputs, targets = batch(text, size, order, device)
        with half:
            found.append(functional.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten()))
    return float(torch.stack(found).mean())


def attention_ms(model: Model, half: torch.autocast, device: torch.device, repeats: int = 20) -> dict[str, float]:
    """Median milliseconds of the first block's attention module at the shape it was trained at, projections included.

    `forward` alone without gradients, and `forward_backward`.
    """
    block = model.blocks[0]
    assert block.seen is not None  # the model has run
    attention, x = block.attention, block.seen.clone().requires_grad_()

    def forward() -> Tensor:
        with half:
            return attention(x, x, x, need_weights=False, is_causal=True)[0]

    def both() -> None:
        torch.autograd.grad(forward().float().square().sum(), [x, attention.in_proj_weight])

    with torch.no_grad():
        alone = _median_ms(forward, device, repeats)
    return {"forward": alone, "forward_backward": _median_ms(both, device, repeats)}


def densities(model: Model, size: Size) -> dict[str, float | None]:
    """Block density of the last call over layers, of the causal triangle's tiles; None for the dense model."""
    found = []
    for block in model.blocks:
        if isinstance(block.attention, BlockSparseMultiheadAttention):
            found.append(block.attention.get_performance_stats()["block_density"])
    blocks = -(-size.context // size.block)
    share = 2 * blocks / (blocks + 1)  # all tiles / those of the triangle
    return {"block_density_of_triangle": share * statistics.fmean(found) if found else None}


def _median_ms(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    run()
    taken = []
    for _ in range(repeats):
        _wait(device)
        begin = time.perf_counter()
        run()
        _wait(device)
        taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> dict[str, Any]:
    """What it ran on, and when."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    told = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in told if line.startswith("model name")]
    return {
        "card": card,
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def run(
    size: Size,
    device: torch.device,
    told: Callable[[str], object] = print,
    keep: Callable[[dict[str, Any]], object] = lambda _: None,
) -> dict[str, Any]:
    """All arms, as plain values that JSON can hold; `keep` is given what there is after each."""
    text = stdlib(size.text)
    found: dict[str, Any] = {
        "machine": machine(device),
        "size": asdict(size),
        "density_asked": DENSITY,
        "dtype": "bfloat16 under autocast" if device.type == "cuda" else "float32",
        "text": {
            "what": f"standard library of Python {platform.python_version()}, PSF licence",
            "bytes": len(text),
            "sha256": hashlib.sha256(text.numpy().tobytes()).hexdigest(),
        },
        "arms": {},
    }
    # Not the global generator's business: what was drawn before and is drawn after stays as it was.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for arm in ARMS:
            train(arm, replace(size, steps=1), text, device, lambda _: None)
        for arm in ARMS:
            found["arms"][arm] = train(arm, size, text, device, told)
            keep(found)
    return found


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, print a table and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name in ("context", "width", "heads", "layers", "batch", "steps", "block", "text"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--lr", type=float)
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    base = Size() if device.type == "cuda" else ON_CPU
    size = Size(**{name: getattr(options, name, None) or value for name, value in asdict(base).items()})
    options.out.mkdir(parents=True, exist_ok=True)

    def keep(found: dict[str, Any]) -> None:
        name = options.out / f"{found['machine']['date']}-language-model-{device.type}"
        name.with_suffix(".json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
        name.with_suffix(".svg").write_text(curves(found), encoding="utf-8")

    found = run(size, device, keep=keep)
    for arm, row in found["arms"].items():
        kept = row["block_density_of_triangle"]
        print(
            f"{arm:9} held out {row['held_out_loss']:.4f} nats a byte, {row['tokens_per_second']:,.0f} tokens/s, "
            f"attention {row['attention_ms']['forward']:.2f} ms forward, "
            f"{row['attention_ms']['forward_backward']:.2f} ms with backward"
            + ("" if kept is None else f", {kept:.4f} of the causal tiles")
        )
    return found


if __name__ == "__main__":
    main()
