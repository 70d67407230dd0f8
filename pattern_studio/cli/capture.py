"""`pattern-studio capture`: record q, k and v of a real model on a text."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StudioError
from . import options as asked

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from ..capture import Capture, LossGradients
    from ..capture.load import Loaded

ABOUT = "record q, k and v of a real model, for analyze --capture"
SAMPLES = 2  # sets of drawn next tokens that gradients are measured of, beside the text's own


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a name on the hub, a folder, smollm2, minilm or qwen")
    parser.add_argument("--text", required=True, type=Path, help="a UTF-8 text file")
    parser.add_argument("--out", required=True, type=Path, help="the capture, a .safetensors file")
    parser.add_argument("--layers", default="all", help="such as 0,7-9 or 0-29/5 (every fifth); all by default")
    parser.add_argument("--kv-heads", help="only these KV heads, with all of their query heads, such as 0,2")
    parser.add_argument("--tokens", type=int, help="of the text's beginning (all that the model takes)")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "float32"), help="float16")
    parser.add_argument(
        "--sensitivity", action="store_true", help="also measure how much the model minds each layer: a run a layer"
    )
    parser.add_argument(
        "--minds",
        action="store_true",
        help="--sensitivity, and which rows the loss minds: what reports rank by, a training step's memory",
    )
    parser.add_argument(
        "--gradients",
        action="store_true",
        help="also measure what the loss minds, for fits: six to nine runs' time, a training step's memory",
    )
    parser.add_argument("--note", default="licence not stated", help="on model and text, such as their licences")


def run(options: argparse.Namespace) -> None:
    layers, kv_heads = _span("--layers", options.layers), _span("--kv-heads", options.kv_heads or "all")
    text = asked.read_text(options.text)
    if options.out.suffix != ".safetensors":
        raise StudioError(f"--out takes a file ending in .safetensors, got {str(options.out)!r}")
    if (options.sensitivity or options.minds) and kv_heads is not None:
        name = "--minds" if options.minds else "--sensitivity"
        raise StudioError(f"{name} measures whole layers, got --kv-heads with it; leave one of them out")
    import torch

    from ..capture.container import MAX_FILE_BYTES
    from ..capture.load import load_model

    loaded = load_model(options.model)
    from ..capture.to_file import estimated_bytes, record_to_file  # after load_model, which explains a missing package

    ids = loaded.ids(text, options.tokens)
    dtype = getattr(torch, options.dtype)
    count = None if layers is None else len(layers)
    size = estimated_bytes(
        loaded.model.config, len(ids), count, None if kv_heads is None else len(kv_heads), dtype.itemsize,
        (1 + SAMPLES) * _dtype_of_gradients(dtype).itemsize if options.gradients else 0, options.minds,
    )  # fmt: skip
    print(f"{loaded.name}: {len(ids)} tokens, up to {size / 1e6:.1f} MB", file=sys.stderr)
    if (options.gradients or options.minds) and size > MAX_FILE_BYTES:
        beside = " and ".join(name for name in ("gradients", "minds") if getattr(options, name))
        raise StudioError(
            f"expected a capture of at most {MAX_FILE_BYTES:,} bytes, got {size:,} with {beside}; record fewer "
            "layers, KV heads or tokens"
        )
    total = count or loaded.model.config.get_text_config().num_hidden_layers
    done: list[int] = []

    def progress(number: int) -> None:
        done.append(number)
        end = "\n" if len(done) == total else ""
        print(f"\rlayer {number}: {len(done)} of {total}", end=end, file=sys.stderr, flush=True)

    only = "" if kv_heads is None else f", KV heads {', '.join(map(str, kv_heads))} only"
    recorded = record_to_file(
        loaded.model,
        {"input_ids": torch.tensor([ids])},
        options.out,
        layers=layers,
        model_name=f"{loaded.name}{only}; {options.note}",
        text=f"{options.text.name}, first {len(ids)} tokens; {options.note}",
        tokens=tuple(loaded.tokenizer.decode([token]) for token in ids),
        dtype=dtype,
        kv_heads=kv_heads,
        progress=progress,
    )
    if options.sensitivity or options.gradients or options.minds:
        _measure(options, loaded, ids, kv_heads)
    for number, why in recorded.skipped.items():
        print(f"layer {number} is not in it: {why}", file=sys.stderr)
    print(f"wrote {options.out}: layers {', '.join(map(str, recorded.layers))}, {options.out.stat().st_size} bytes")


def _measure(options: argparse.Namespace, loaded: Loaded, ids: tuple[int, ...], kv_heads: list[int] | None) -> None:
    """Writes the file once more, with what its layers mean to the model; on an error nothing is left."""
    from ..capture import Capture
    from ..capture.load import load_model
    from ..metrics.sensitivity import layer_sensitivity

    try:
        capture = Capture.load(options.out)
        for name in ("gradients", "minds"):
            if getattr(options, name) and not capture.causal:
                raise StudioError(
                    f"--{name} takes a model that predicts the next token, got {loaded.name}, whose queries see all "
                    "keys; leave it out"
                )
        model = (load_model(options.model, head=True) if capture.causal else loaded).model
        if options.sensitivity or options.minds:
            weights = layer_sensitivity(model, ids, capture, progress=_tell)
            capture = replace(capture, sensitivity=weights)
        if options.minds:
            from ..learned import measured_minds

            _tell("which rows the loss minds")
            capture = replace(capture, minds=measured_minds(model, ids, capture))
        if options.gradients:
            _tell("what the loss minds")
            capture = replace(capture, gradients=_gradients(model, ids, capture, kv_heads))
        capture.save(options.out)
    except StudioError:
        options.out.unlink()
        raise


def _gradients(
    model: PreTrainedModel, ids: tuple[int, ...], capture: Capture, kv_heads: list[int] | None
) -> LossGradients:
    """The loss's gradients of the layers and heads that a capture holds, in the dtype that they are kept in."""
    from ..learned import loss_gradients

    layer = next(iter(capture.layers.values()))
    share = layer.heads // layer.kv_heads
    heads = None if kv_heads is None else [one * share + n for one in kv_heads for n in range(share)]
    found = loss_gradients(model, ids, samples=SAMPLES, layers=list(capture.layers), heads=heads)
    return found.to(_dtype_of_gradients(capture.dtype))


def _dtype_of_gradients(dtype: torch.dtype) -> torch.dtype:
    """float32 for such a capture, else bfloat16: in float16 the gradients of some models would be 0."""
    import torch

    return torch.float32 if dtype == torch.float32 else torch.bfloat16


def _tell(said: str) -> None:
    print(said, file=sys.stderr, flush=True)


def _span(name: str, text: str) -> list[int] | None:
    """`0,7-9` or `0-29/5` as numbers; `all` as None."""
    if text == "all":
        return None
    out: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6})(?:/([1-9]\d{0,5}))?)?", part.strip())
        if found is None:
            raise StudioError(f"{name} takes all, or numbers and ranges such as 0,7-9 or 0-29/5, got {text!r}")
        first, last, step = found.groups()
        out += range(int(first), int(last or first) + 1, int(step or 1))
    if not out or len(set(out)) < len(out):
        raise StudioError(f"{name} takes at least one number, each once, got {text!r}")
    return out
