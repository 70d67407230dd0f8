"""Retrieval end to end: whether a real model under a pattern still copies what stands far back in its context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import StudioError
from ..expr import Pattern
from ..problem import whole
from .loss import output_layer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class CopyRow:
    """A needle that begins at `depth` (0 first, 1 last) of the context, `distance` tokens before its copy.

    Losses in nats a token and accuracies (the best guess is right) over the copy's tokens but the first.
    """

    depth: float
    distance: int
    dense_loss: float
    sparse_loss: float
    dense_accuracy: float
    sparse_accuracy: float


@dataclass(frozen=True)
class CopyReport:
    """The rows of one context length, each a mean over `draws` needles of `needle` tokens."""

    pattern: str
    tokens: int
    needle: int
    draws: int
    rows: tuple[CopyRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        return asdict(self)

    def to_markdown(self) -> str:
        """A table by depth."""
        lines = [
            f"Copying {self.needle} random tokens at the end of {self.tokens} ({self.draws} draws):",
            "",
            "| depth | distance | dense loss | sparse loss | dense accuracy | sparse accuracy |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {row.depth:.2f} | {row.distance} | {row.dense_loss:.3f} | {row.sparse_loss:.3f} | "
            f"{row.dense_accuracy:.2f} | {row.sparse_accuracy:.2f} |"
            for row in self.rows
        ]
        return "\n".join(lines) + "\n"


def copy_probe(
    model: PreTrainedModel,
    filler: Sequence[int],
    pattern: Pattern,
    *,
    depths: Sequence[float] = (0, 0.25, 0.5, 0.75),
    needle: int = 16,
    draws: int = 2,
    seed: int = 0,
    block: int | tuple[int, int] = 128,
) -> CopyReport:
    """Random tokens stand in a filler text, and again at its end: does the model continue the second time?

    Args:
        model: a causal language model of transformers in eval mode.
        filler: the token ids of a text; it keeps its length, the needle and its copy replace tokens of it.
        pattern: for all layers, or by `heads()` and `layers()`.
        depths: where needles begin, as a share of the room that there is before the copy.
        needle: tokens of a needle, at least 2, drawn evenly from the vocabulary.
        draws: needles for each depth; seed: what they are drawn from.

    Raises:
        StudioError: a filler without room for two needles, a depth outside [0, 1], a model that is no causal
            language model in eval mode, or what `swapped` refuses.

    Source: induction heads' repeated random tokens (Olsson et al., arXiv:2209.11895), placed by depth as needles
    in a haystack are.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import pattern_studio as ps
    >>> size = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=9, num_hidden_layers=1, **size)).eval()
    >>> report = copy_probe(model, [1] * 20, ps.causal, needle=4, depths=(0, 1), draws=1)
    >>> [row.distance for row in report.rows]
    [16, 4]
    """
    from .swap import swapped  # needs transformers

    length, draws = whole("needle", needle, 2), whole("draws", draws, 1)
    room = len(filler) - 2 * length
    if room < 0 or not depths or not all(0 <= depth <= 1 for depth in depths):
        raise StudioError(
            f"expected a filler of at least {2 * length} tokens and depths from 0 to 1, got {len(filler)} and "
            f"{list(depths)}; take a longer text or a shorter needle"
        )
    if model.training:
        raise StudioError("expected a model in eval mode, got one in training mode; call model.eval()")
    output = output_layer(model)
    vocabulary = model.config.get_text_config().vocab_size
    rows = []
    for at, depth in enumerate(depths):
        first = round(depth * room)
        found = torch.zeros(4, dtype=torch.float64)
        for draw in range(draws):
            drawn = np.random.default_rng([seed, at, draw]).integers(0, vocabulary, length)
            ids = np.array(filler)
            ids[first : first + length] = ids[-length:] = drawn
            tokens = torch.from_numpy(ids)[None].to(model.device)
            dense = _copied(model, output, tokens, length)
            with swapped(model, pattern, block=block):
                sparse = _copied(model, output, tokens, length)
            found += torch.tensor([dense[0], sparse[0], dense[1], sparse[1]], dtype=torch.float64)
        rows.append(CopyRow(float(depth), len(filler) - length - first, *(found / draws).tolist()))
    return CopyReport(str(pattern), len(filler), length, draws, tuple(rows))


def _copied(model: PreTrainedModel, output: torch.nn.Module, tokens: Tensor, needle: int) -> tuple[float, float]:
    """Loss and accuracy over the last `needle - 1` tokens."""
    with torch.no_grad():
        hidden = model.base_model(tokens, use_cache=False).last_hidden_state[0, -needle:-1]
        logits, target = output(hidden).double(), tokens[0, 1 - needle :]
        loss = torch.nn.functional.cross_entropy(logits, target)
    return float(loss), float((logits.argmax(-1) == target).double().mean())
