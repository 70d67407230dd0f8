"""loss_gradients: how a model's loss on a text changes with each head's attention output, by one pass back.

Source: the empirical Fisher information, as in Michel et al. (arXiv:1905.10650) and Molchanov et al.
(arXiv:1906.10771), who prune heads and channels by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..capture import LossGradients
from ..errors import StudioError
from ..metrics.loss import LOGITS, output_layer
from ..problem import whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def loss_gradients(
    model: PreTrainedModel,
    ids: Sequence[int],
    *,
    samples: int = 2,
    seed: int = 0,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> LossGradients:
    """Gradients of the summed next-token loss by each layer's attention outputs, dense, on the model's device.

    The first is that of the text's own next tokens. `samples` more are of next tokens drawn from what the
    model predicts, one set each: their squares are the Fisher information, the second order of the loss, which
    the text's own tokens alone show with more noise.

    Args:
        model: a causal language model of transformers in eval mode; its parameters get no gradient.
        ids: the text's token ids.
        samples: sets of drawn tokens, from 0 up; each is one more pass back.
        seed: of the draws, which touch no global generator.
        layers: those to keep, by the model's own numbers, by default all.
        heads: query heads to keep of each layer, numbered anew from 0, by default all.

    Returns:
        float32, 1 + samples draws, of the layers in order of their numbers. Memory: what one pass keeps for the way
        back to the first of them, their gradients of one draw, and these.

    Raises:
        StudioError: fewer than two tokens, a model in training mode or without a plain language-model head,
            attention layers that do not know their number, layers or heads that it does not have, or a count that is
            none.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> size = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=9, num_hidden_layers=2, **size)).eval()
    >>> found = loss_gradients(model, range(8), samples=1)
    >>> list(found.layers), found.layers[1].shape
    ([0, 1], torch.Size([2, 2, 8, 4]))
    >>> loss_gradients(model, range(8), layers=[1], heads=[0]).layers[1].shape
    torch.Size([3, 1, 8, 4])
    """
    kept: dict[int, list[Tensor]] = {}
    with gradient_draws(model, ids, samples, seed=seed, layers=layers) as (_, draws):
        for back in draws:
            for number, layer in back.items():
                some = _chosen("heads", heads, range(layer.shape[0]))
                kept.setdefault(number, []).append(layer[some].float())
    return LossGradients({number: torch.stack(found) for number, found in kept.items()})


@contextmanager
def gradient_draws(
    model: PreTrainedModel,
    ids: Sequence[int],
    samples: int,
    *,
    seed: int = 0,
    layers: Sequence[int] | None = None,
    own: bool = True,
) -> Iterator[tuple[dict[int, Tensor], Iterator[dict[int, Tensor]]]]:
    """Within it, dense attention outputs by layer, and their gradients one draw after the other.

    Both [heads, tokens, head_dim]. Arguments and errors as those of `loss_gradients`; the text's own tokens are the
    first draw, left out with `own=False`. Of the draws one is alive at a time, and the model is left as it was.
    """
    samples = whole("samples", samples, 0)
    if len(ids) < 2:
        raise StudioError(f"expected at least 2 tokens, as the first has no loss, got {len(ids)}; take a longer text")
    if model.training:
        raise StudioError("expected a model in eval mode, got one in training mode; call model.eval()")
    from .attention_outputs import attention_outputs  # needs transformers

    head, tokens = output_layer(model), torch.tensor([list(ids)], device=model.device)
    frozen = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in frozen:
            parameter.requires_grad_(False)
        with torch.enable_grad(), attention_outputs(model, layers) as outputs:
            hidden = model.base_model(tokens, use_cache=False).last_hidden_state
        numbers = sorted(_chosen("layers", layers, outputs))
        sets = _by_hidden(head, hidden.detach()[0], tokens[0], samples, seed)[not own :]
        reached = [outputs[n] for n in numbers]

        def draws() -> Iterator[dict[int, Tensor]]:
            for at, one in enumerate(sets):
                back = torch.autograd.grad(hidden, reached, one[None], retain_graph=at < len(sets) - 1)
                yield {n: layer[0] for n, layer in zip(numbers, back, strict=True)}

        yield {n: layer.detach()[0] for n, layer in zip(numbers, reached, strict=True)}, draws()
    finally:
        for parameter, before in frozen:
            parameter.requires_grad_(before)


def _chosen(what: str, asked: Sequence[int] | None, met: Collection[int]) -> list[int]:
    """What was asked for of the model's layers or heads, all of them for None."""
    chosen = sorted(met) if asked is None else list(asked)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(met):
        raise StudioError(f"expected {what} among the model's {sorted(met)}, each once, got {chosen}; choose of these")
    return chosen


def _by_hidden(head: nn.Module, hidden: Tensor, tokens: Tensor, samples: int, seed: int) -> list[Tensor]:
    """The gradients by the last hidden states [tokens, width], logits a few rows at a time."""
    generator = torch.Generator(hidden.device).manual_seed(seed)
    sets = [torch.zeros_like(hidden) for _ in range(samples + 1)]
    for first in range(0, len(tokens) - 1, LOGITS):
        stop = min(first + LOGITS, len(tokens) - 1)
        with torch.enable_grad():
            rows = hidden[first:stop].clone().requires_grad_()
            chance = head(rows).float().log_softmax(-1)
        drawn = torch.multinomial(chance.detach().exp(), max(samples, 1), True, generator=generator).T[:samples]
        for at, targets in enumerate([tokens[first + 1 : stop + 1], *drawn]):
            loss = -chance.gather(1, targets[:, None]).sum()
            sets[at][first:stop] = torch.autograd.grad(loss, rows, retain_graph=at < samples)[0]
    return sets
