"""End to end: the next-token loss of a real model with a pattern in place of its dense attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import StudioError
from ..expr import Pattern

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STRETCH = 32  # tokens whose losses count as one observation: neighbours are far from independent
LOGITS = 128  # rows of logits that are alive at a time


@dataclass(frozen=True)
class LayerLoss:
    """One layer swapped alone: what that adds to the loss, in nats a token."""

    layer: int
    added: float


@dataclass(frozen=True)
class LossReport:
    """Next-token losses in nats a token over the `scored` last positions.

    - dense, sparse: mean losses without and with the pattern; perplexities are their exponentials.
    - added: sparse - dense; `added_low`, `added_high` its 95 % interval over this text, from paired differences
      averaged over stretches of 32 tokens (None with fewer than two stretches).
    - layers: each layer swapped alone, empty where it was not asked for.
    """

    pattern: str
    tokens: int
    scored: int
    dense: float
    sparse: float
    added_low: float | None
    added_high: float | None
    layers: tuple[LayerLoss, ...] = ()

    @property
    def added(self) -> float:
        """Nats a token that the pattern adds."""
        return self.sparse - self.dense

    def as_dict(self) -> dict[str, Any]:
        """The same as values that JSON can hold, with perplexities and the relative increase."""
        return {
            **vars(self),
            "added": self.added,
            "relative": self.added / self.dense if self.dense else None,
            "perplexity_dense": math.exp(self.dense),
            "perplexity_sparse": math.exp(min(self.sparse, 700)),  # a float ends at e^709
            "layers": [vars(layer) for layer in self.layers],
        }

    def to_markdown(self) -> str:
        """A table of the losses, then of the layers."""
        low, high = (("-" if x is None else f"{x:+.4f}") for x in (self.added_low, self.added_high))
        lines = [
            f"Next-token loss over the last {self.scored} of {self.tokens} tokens, nats:",
            "",
            "| | loss | perplexity |",
            "|---|---|---|",
            f"| dense | {self.dense:.4f} | {math.exp(self.dense):.4g} |",
            f"| `{self.pattern}` | {self.sparse:.4f} | {math.exp(min(self.sparse, 700)):.4g} |",
            "",
            f"Added: {self.added:+.4f} ({low} to {high}, 95 % over this text).",
        ]
        if self.layers:
            lines += ["", "| layer swapped alone | added |", "|---|---|"]
            lines += [f"| {one.layer} | {one.added:+.4f} |" for one in self.layers]
        return "\n".join(lines) + "\n"


def next_token_loss(
    model: PreTrainedModel,
    ids: Sequence[int],
    pattern: Pattern,
    *,
    score_from: int | None = None,
    block: int | tuple[int, int] = 128,
    layers: Sequence[int] | None = None,
    sensitivity: bool = False,
    progress: Callable[[str], None] | None = None,
) -> LossReport:
    """What the pattern, one for all or by `heads()` and `layers()`, costs the model on a text, without training.

    Args:
        model: a causal language model of transformers in eval mode (`capture.load.load_model(name, head=True)`).
        ids: the text's token ids; positions from `score_from` (by default the second half) are scored, so that
            every scored token has a context that the pattern can lose.
        layers: the layers that get the pattern, by default all.
        sensitivity: also swap each of them alone, one forward pass a layer.
        progress: told what is run next.

    Raises:
        StudioError: fewer than two tokens, `score_from` outside them, a model in training mode or without a plain
            language-model head, or what `swapped` refuses.

    Source: the perplexity comparisons of sparse attention papers, such as StreamingLLM (Xiao et al.,
    arXiv:2309.17453).

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import pattern_studio as ps
    >>> size = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=9, num_hidden_layers=1, **size)).eval()
    >>> report = next_token_loss(model, list(range(8)), ps.causal)
    >>> report.scored, abs(report.added) < 1e-6
    (4, True)
    """

    def losses(name: str, chosen: Sequence[int] | None) -> Tensor:
        if progress is not None:
            progress(name)
        return position_losses(model, ids, pattern, score_from=score_from, block=block, layers=chosen)

    dense, sparse = losses("dense", []), losses("sparse", layers)
    alone: list[LayerLoss] = []
    if sensitivity:
        for layer in range(model.config.get_text_config().num_hidden_layers) if layers is None else layers:
            alone.append(LayerLoss(layer, float((losses(f"layer {layer}", [layer]) - dense).mean())))
    low, high = added_interval(sparse - dense)
    return LossReport(
        str(pattern), len(ids), len(dense), float(dense.mean()), float(sparse.mean()), low, high, tuple(alone)
    )


def position_losses(
    model: PreTrainedModel,
    ids: Sequence[int],
    pattern: Pattern,
    *,
    score_from: int | None = None,
    block: int | tuple[int, int] = 128,
    layers: Sequence[int] | None = None,
) -> Tensor:
    """Each scored position's next-token loss in nats under a pattern, float64 [scored]; dense with `layers=[]`.

    Arguments and errors as those of `next_token_loss`, which compares two of these; whoever tries many patterns on
    one text needs the dense ones once.
    """
    from .swap import swapped  # needs transformers

    first = len(ids) // 2 if score_from is None else score_from
    if len(ids) < 2 or not 1 <= first < len(ids):
        raise StudioError(
            f"expected at least 2 tokens and a score_from from 1 to {len(ids) - 1}, got {len(ids)} tokens and {first}"
        )
    if model.training:
        raise StudioError("expected a model in eval mode, got one in training mode; call model.eval()")
    head = output_layer(model)
    if layers is not None and not len(layers):
        return _losses(model, head, ids, first)
    with swapped(model, pattern, layers=layers, block=block):
        return _losses(model, head, ids, first)


def output_layer(model: PreTrainedModel) -> torch.nn.Module:
    """What turns the last hidden state into logits.

    Raises:
        StudioError: no causal language model, or one that changes its logits afterwards.
    """
    head = model.get_output_embeddings()
    if head is None or getattr(model.config.get_text_config(), "final_logit_softcapping", None):
        raise StudioError(
            f"expected a causal language model with a plain output layer, got {type(model).__name__}; load it with "
            "load_model(name, head=True)"
        )
    return head


def _losses(model: PreTrainedModel, head: torch.nn.Module, ids: Sequence[int], first: int) -> Tensor:
    """Each position's loss from `first` on, float64 [scored]; logits a few rows at a time."""
    tokens = torch.tensor([ids], device=model.device)
    with torch.no_grad():
        hidden = model.base_model(tokens, use_cache=False).last_hidden_state[0, first - 1 : -1]
        parts = [
            torch.nn.functional.cross_entropy(head(hidden[at : at + LOGITS]).float(), target, reduction="none")
            for at, target in zip(range(0, len(hidden), LOGITS), tokens[0, first:].split(LOGITS), strict=True)
        ]
    return torch.cat(parts).double().cpu()


def added_interval(differences: Tensor) -> tuple[float | None, float | None]:
    """The 95 % interval of a mean of differences in a row, by means over stretches of 32; None with fewer than two.

    >>> added_interval(torch.cat([torch.full((32,), 1.0), torch.full((32,), 3.0)]).double())
    (0.04, 3.96)
    """
    means = torch.stack(
        [part.mean() for part in differences.split(STRETCH) if len(part) == STRETCH] or [torch.zeros(())]
    )
    if len(means) < 2:
        return None, None
    centre, half = float(differences.mean()), 1.96 * float(means.std() / len(means) ** 0.5)
    return round(centre - half, 12), round(centre + half, 12)
