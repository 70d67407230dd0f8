"""How much a model's loss minds each layer: what one reference pattern does in each of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..capture import Capture
from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from .analyzer import analyze
from .turned import ORDER

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def reference_pattern(tokens: int, causal: bool) -> Pattern:
    """A window of a 32nd of the text on both sides and its first four keys: narrow, yet no head of it is empty.

    >>> str(reference_pattern(256, causal=True))
    'causal & (window(8, 8) | globals(cols=(range(0, 4),)))'
    """
    window, columns = PRIMITIVES["window"], PRIMITIVES["globals"]
    pattern = window(tokens // 32, tokens // 32) | columns(cols=range(4))
    return PRIMITIVES["causal"] & pattern if causal else pattern


def layer_sensitivity(
    model: PreTrainedModel,
    ids: Sequence[int],
    capture: Capture,
    *,
    progress: Callable[[str], None] | None = None,
) -> tuple[float, ...]:
    """One weight for each layer of a capture, in the order of their numbers, with sum 1: `Capture.sensitivity`.

    `w_l` is in proportion to `moved_l / (mean over the layer's heads of (1 - c_h)^8)`, both under the reference
    pattern: `c_h` the cosine of a head's output with and without it, and `moved_l` how far the model moves with
    layer l alone under it. For a decoder that is the mean squared change of the next-token losses (nats squared) of
    the text's second half, for an encoder 1 - cosine of the text's embedding. One forward pass a layer, and one more.

    Args:
        model: the one that was recorded, in eval mode; a decoder with its head (`load_model(name, head=True)`).
        ids: the text that was recorded.
        capture: layers with all of their heads.
        progress: told each layer's number in words.

    Raises:
        StudioError: another text than the capture's, one too short for the reference pattern to lose anything, or
            what `next_token_loss` or `embed` refuses.

    Source: ours; the rank correlation of what it weighs is in gallery/claims, from `python -m benchmarks.predictors`.

    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from pattern_studio.capture.record import record
    >>> size = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=9, num_hidden_layers=2, **size)).eval()
    >>> ids = [n % 9 for n in range(32)]
    >>> capture = record(model, {"input_ids": torch.tensor([ids])}, layers=[0, 1], model_name="toy", text="none",
    ...                  tokens=tuple(map(str, ids)))
    >>> round(sum(layer_sensitivity(model, ids, capture)), 3)
    1.0
    """
    if len(ids) != len(capture.tokens):
        raise StudioError(
            f"expected the text of the capture, {len(capture.tokens)} tokens, got {len(ids)}; pass the ids recorded"
        )
    pattern = reference_pattern(len(ids), capture.causal)
    report = analyze(pattern, capture, metrics=["output_error"])
    turned = [
        sum((1 - min(max(error.cosine or 0.0, 0.0), 1.0)) ** ORDER for error in errors) / len(errors)
        for errors in ([head.output_error for head in layer.heads if head.output_error] for layer in report.layers)
    ]
    if not all(turned):
        raise StudioError(
            f"expected a text on which {pattern} changes the output of every layer, got one of {len(ids)} tokens "
            "where it does not; take a longer text"
        )
    moved_by = _loss_moved(model, ids, pattern) if capture.causal else _embedding_moved(model, ids, pattern)
    moved = []
    for layer in capture.layers:
        if progress is not None:
            progress(f"layer {layer} alone")
        moved.append(moved_by(layer))
    minds = [far / reference for far, reference in zip(moved, turned, strict=True)]
    return tuple(float(f"{weight / sum(minds):.4g}") for weight in minds)  # the rest differs from machine to machine


def _loss_moved(model: PreTrainedModel, ids: Sequence[int], pattern: Pattern) -> Callable[[int], float]:
    """Mean squared change of the next-token losses when one layer alone has the pattern."""
    from .loss import position_losses

    dense = position_losses(model, ids, pattern, layers=[])
    return lambda layer: float((position_losses(model, ids, pattern, layers=[layer]) - dense).square().mean())


def _embedding_moved(model: PreTrainedModel, ids: Sequence[int], pattern: Pattern) -> Callable[[int], float]:
    """1 - cosine between the embedding and that of the model when one layer alone has the pattern."""
    from .embedding import embed

    dense = embed(model, [ids])
    count = model.config.get_text_config().num_hidden_layers

    def moved(layer: int) -> float:
        alone = PRIMITIVES["layers"]({n: pattern if n == layer else PRIMITIVES["dense"] for n in range(count)})
        return float((dense - embed(model, [ids], alone)).square().sum() / 2)  # of unit vectors: 1 - cosine

    return moved
