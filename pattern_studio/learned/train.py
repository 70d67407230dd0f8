"""train: distil a gate from a model's dense block mass, calibrate it, and say what it keeps of tokens it never saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..capture import Capture
from ..errors import StudioError
from ..metrics import block_mass
from ..problem import whole
from .gate import BlockGate

TEMPERATURES = tuple(np.geomspace(0.5, 8, 33).tolist())  # that calibrate() tries, from sharp to flat


@dataclass(frozen=True)
class Distilled:
    """KL(dense || predicted) in nats, mean over rows and heads: on the rows trained on, at each step, and on others.

    `held_out_before` and `held_out_after` are None where no row was left out.
    """

    losses: tuple[float, ...]
    held_out_before: float | None
    held_out_after: float | None


@dataclass(frozen=True)
class Quality:
    """What a gate's choice keeps, means over rows and heads: `predicted` and `measured` mass, and block density.

    `density` is the share of the visible tiles of these rows. `on` says which rows of which text.
    """

    predicted: float
    measured: float
    density: float
    on: str


def mass_loss(log_mass: Tensor, target: Tensor) -> Tensor:
    """KL(target || predicted) in nats, a scalar: the mean over rows and heads of `sum t (ln t - ln p)`.

    log_mass: a gate's output [batch, heads, q_blocks, kv_blocks]; target: the dense block mass, the same
    shape, each row adding up to 1. Tiles without target mass add nothing; rows without any are not counted.

    >>> float(mass_loss(torch.tensor([[[[0.5, 0.5]]]]).log(), torch.tensor([[[[1.0, 0.0]]]])))
    0.6931471824645996
    """
    target = target.to(log_mass.dtype)
    there = target > 0
    ratio = torch.where(there, target, 1).log() - torch.where(there, log_mass, 0)
    return (target * torch.where(there, ratio, 0)).sum() / there.any(-1).sum().clamp(min=1)


def distill(
    gate: BlockGate,
    capture: Capture,
    layer: int,
    *,
    fit_rows: int | None = None,
    steps: int = 40,
    lr: float = 3e-3,
    weight_decay: float = 1.0,
) -> Distilled:
    """Train a gate towards one layer's dense block mass (streamed, never n x n), by AdamW on all its rows at once.

    `fit_rows` keeps to the query blocks that end by that row; the blocks that begin at or after it are
    held out, and each side must have one. The gate is changed in place and uses no random numbers, so a
    run can be repeated.

    Raises StudioError where the layer is not in the capture or does not fit the gate.

    Source: the self-distillation of SeerAttention (Gao et al., arXiv:2410.13276).
    """
    q, k, mass = _layer(gate, capture, layer)
    tokens = len(capture.tokens)
    row = tokens if fit_rows is None else whole("fit_rows", fit_rows, 1, tokens)
    known = _blocks(gate, tokens, range(row))
    later = _blocks(gate, tokens, range(row, tokens)) if row < tokens else None
    optimizer = torch.optim.AdamW(gate.parameters(), lr=lr, weight_decay=weight_decay)
    steps, losses = whole("steps", steps, 1), []
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def held_out() -> float | None:
        if later is None:
            return None
        with torch.no_grad():
            return float(mass_loss(gate(q, k, causal=capture.causal)[:, :, later], mass[:, :, later]))

    before = held_out()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = mass_loss(gate(q, k, causal=capture.causal)[:, :, known], mass[:, :, known])
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return Distilled(tuple(losses), before, held_out())


@torch.no_grad()
def quality(
    gate: BlockGate,
    capture: Capture,
    layer: int,
    *,
    rows: range | None = None,
    density: float | None = None,
    quality_threshold: float | None = None,
    temperature: float = 1.0,
    sinks: int = 1,
    diagonal: bool = True,
) -> Quality:
    """What the gate's choice keeps of a layer's dense attention, beside what it predicted.

    Measured on the query blocks that lie in `rows`: those that a gate was not trained on, or all (None)
    of a text that it never saw. Other arguments as in `BlockGate.choose`, errors as in `distill`.
    """
    q, k, mass = _layer(gate, capture, layer)
    chosen = gate.choose(
        q,
        k,
        density=density,
        quality_threshold=quality_threshold,
        temperature=temperature,
        sinks=sinks,
        diagonal=diagonal,
        causal=capture.causal,
    )
    tokens = len(capture.tokens)
    rows = range(tokens) if rows is None else rows
    part = _blocks(gate, tokens, rows)
    said = torch.softmax(gate(q, k, causal=capture.causal) / temperature, -1)[:, :, part]
    there = gate.tiling(q, k, capture.causal).visible(q.device)[:, part].sum() * gate.heads
    mask = chosen[:, :, part]
    return Quality(
        predicted=float((said * mask).sum(-1).mean()),
        measured=float((mass[:, :, part] * mask).sum(-1).mean()),
        density=int(mask.sum()) / int(there),
        on=f"rows {rows.start} to {rows.stop - 1} of {capture.text}, layer {layer}",
    )


def calibrate(
    gate: BlockGate,
    capture: Capture,
    layer: int,
    quality_threshold: float,
    *,
    rows: range | None = None,
    sinks: int = 1,
    diagonal: bool = True,
) -> float:
    """The lowest temperature at which the measured mean mass reaches the threshold on a layer's rows.

    A gate is over- or underconfident on rows it was not trained on: calibrate it on such rows, and report
    what it keeps on yet others. Raises StudioError where no temperature up to 8 reaches it.
    """
    found = 0.0
    for temperature in TEMPERATURES:
        found = quality(
            gate,
            capture,
            layer,
            rows=rows,
            quality_threshold=quality_threshold,
            temperature=temperature,
            sinks=sinks,
            diagonal=diagonal,
        ).measured
        if found >= quality_threshold:
            return temperature
    raise StudioError(
        f"expected a measured mass of {quality_threshold:g} at some temperature up to {TEMPERATURES[-1]:g}, got "
        f"{found:g} there; train the gate longer, or ask for less"
    )


def _layer(gate: BlockGate, capture: Capture, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """A layer's q and k with a batch of 1, on the gate's device, and its dense block mass."""
    mass = block_mass(capture, layer, gate.block)  # which checks the layer
    if abs(gate.scale - capture.scale) > 1e-6 * capture.scale:
        raise StudioError(f"expected a gate of the capture's scale {capture.scale:g}, got {gate.scale:g}; pass scale=")
    device, part = gate.query.device, capture.layers[layer]
    return part.q[None].to(device), part.k[None].to(device), torch.from_numpy(mass)[None].to(device)


def _blocks(gate: BlockGate, tokens: int, rows: range) -> slice:
    """The query blocks that lie in a range of rows; StudioError where there is none."""
    size = gate.block[0]
    first, stop = -(-rows.start // size), -(-tokens // size) if rows.stop == tokens else rows.stop // size
    if not 0 <= rows.start <= rows.stop <= tokens or first >= stop:
        raise StudioError(
            f"expected rows within {tokens} tokens that hold a block of {size}, got rows {rows.start} to "
            f"{rows.stop - 1}; take more rows or smaller query blocks"
        )
    return slice(first, stop)
