"""measured_minds: which rows a model's loss minds, and how each layer's attention enters the residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..capture import Capture, LayerMinds, Minds
from ..errors import StudioError
from .loss_gradients import gradient_draws

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAMPLES = 8


def measured_minds(
    model: PreTrainedModel, ids: Sequence[int], capture: Capture, *, samples: int = SAMPLES, seed: int = 0
) -> Minds:
    """What the model minds of each layer of a capture of this text: `Capture.minds`.

    `rows` are means of `(g . o)^2` over `samples` sets of next tokens drawn from what the model predicts, `g` the
    gradient of their summed loss by the row's dense output `o`: in the second order of the loss, what a row's output
    is worth as a whole. One forward pass, and one pass back for each set. Memory: what a pass keeps for the way back,
    and one set's gradients.

    Args:
        model: the one that was recorded, in eval mode, with its head (`load_model(name, head=True)`).
        ids: the text that was recorded.
        capture: layers with all of their heads.

    Raises:
        StudioError: another text than the capture's, a layer whose heads' outputs go through no linear projection or
            that is not given the residual stream, or what `loss_gradients` refuses.

    Source: the Fisher information of a gate on each row, as that of heads in Michel et al. (arXiv:1905.10650).

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from pattern_studio.capture.record import record
    >>> size = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=9, num_hidden_layers=2, **size)).eval()
    >>> ids = [n % 9 for n in range(32)]
    >>> capture = record(model, {"input_ids": torch.tensor([ids])}, layers=[1], model_name="toy", text="none",
    ...                  tokens=tuple(map(str, ids)))
    >>> found = measured_minds(model, ids, capture).layers[1]
    >>> found.rows.shape, found.projection.shape, found.stream.shape
    (torch.Size([2, 32]), torch.Size([8, 8]), torch.Size([32]))
    """
    if len(ids) != len(capture.tokens):
        raise StudioError(
            f"expected the text of the capture, {len(capture.tokens)} tokens, got {len(ids)}; pass the ids recorded"
        )
    layers = list(capture.layers)
    kind = torch.float32 if capture.dtype == torch.float64 else capture.dtype
    with (
        _watched(model, layers) as (streams, inputs),
        gradient_draws(model, ids, samples, seed=seed, layers=layers, own=False) as (outputs, draws),
    ):
        rows = {number: torch.zeros(out.shape[:2], device=out.device) for number, out in outputs.items()}
        for back in draws:
            for number, gradient in back.items():
                rows[number] += (gradient * outputs[number]).float().sum(-1).square() / samples
        found = {}
        for number in layers:
            projection = _projection(number, outputs[number], inputs.get(number, []))
            if number not in streams or len(streams[number]) != len(ids):
                raise StudioError(
                    f"expected layer {number} to be given the residual stream, got a model of another kind"
                )
            found[number] = LayerMinds(rows[number].cpu(), projection.to(kind).cpu(), streams[number].cpu())
    return Minds(found)


@contextmanager
def _watched(model: PreTrainedModel, layers: Sequence[int]) -> Iterator[tuple[dict[int, Tensor], dict[int, list]]]:
    """During a forward pass: by layer, |h|^2 of each token on its way in, and what linear parts of attention are given.

    A layer is what holds the attention that has its number.
    """
    streams: dict[int, Tensor] = {}
    inputs: dict[int, list[tuple[nn.Module, Tensor]]] = {}
    hooks = []

    def enters(number: int):
        def hook(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]  # [1, tokens, width]
            streams[number] = hidden.detach()[0].float().square().sum(-1)

        return hook

    def is_given(number: int):
        def hook(part: nn.Module, args: tuple) -> None:
            if len(args) == 1:
                inputs.setdefault(number, []).append((part, args[0].detach()))

        return hook

    try:
        for name, part in model.named_modules():
            number: Any = getattr(part, "layer_idx", None)
            matrices = [one for one in part.children() if getattr(getattr(one, "weight", None), "ndim", 0) == 2]
            if number not in layers or not matrices:  # a layer may have its number too, its children are norms
                continue
            layer = model.get_submodule(name.rpartition(".")[0])
            hooks.append(layer.register_forward_pre_hook(enters(number), with_kwargs=True))
            hooks += [one.register_forward_pre_hook(is_given(number)) for one in matrices]
        yield streams, inputs
    finally:
        for hook in hooks:
            hook.remove()


def _projection(number: int, out: Tensor, inputs: Sequence[tuple[nn.Module, Tensor]]) -> Tensor:
    """The matrix [width, heads * head_dim] of the part that is given the heads' outputs."""
    flat = out.transpose(0, 1).flatten(1)  # [tokens, heads * head_dim]
    for part, given in inputs:
        if given.numel() == flat.numel() and torch.equal(given.reshape(flat.shape), flat):
            # Asked of the part itself, which may hold its weights in any way: a matrix, its transpose, or packed.
            asked = torch.eye(flat.shape[1], dtype=flat.dtype, device=flat.device)
            with torch.no_grad():
                return (part(asked[None]) - part(torch.zeros_like(asked[None])))[0].T.contiguous()
    raise StudioError(
        f"expected the heads' outputs of layer {number} to go through one linear projection, got none that is given "
        "them; measure another model"
    )
