"""Recording into a file layer by layer: memory holds one layer, whatever the model and the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from pattern_studio.capture.container import MAX_FILE_BYTES
from pattern_studio.capture.format import dtype_name, metadata_of
from pattern_studio.capture.layer import LayerCapture
from pattern_studio.capture.record import run_recorded
from pattern_studio.capture.recorder import Recorder
from pattern_studio.errors import StudioError

_NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}
_ENTRY = 160  # bytes that a tensor takes in the header, at most


@dataclass(frozen=True)
class Recorded:
    """What `record_to_file` wrote: its layers, those that no capture can hold with the reason, and its bytes."""

    layers: tuple[int, ...]
    skipped: Mapping[int, str]
    bytes: int


def estimated_bytes(
    config: PretrainedConfig,
    tokens: int,
    layers: int | None = None,
    kv_heads: int | None = None,
    item: int = 2,
    gradients: int = 0,
    minds: bool = False,
) -> int:
    """Bytes that a capture will hold: layers * tokens * (heads * (item + gradients) + 2 KV heads * item) * head_dim.

    `layers` and `kv_heads` are how many are kept, by default all of the model's; `item` is bytes of an element of q, k
    and v, `gradients` bytes of one of the loss's gradients over all their draws, 0 without them. With `minds` also what
    the model minds: layers * (tokens * (heads + 1) * 4 + heads * head_dim * hidden size * item).

    >>> from transformers import LlamaConfig
    >>> estimated_bytes(LlamaConfig(num_hidden_layers=30, hidden_size=576, num_attention_heads=9,
    ...                             num_key_value_heads=3), tokens=8192) // 30
    15728640
    """
    config = config.get_text_config()
    heads = config.num_attention_heads
    own = getattr(config, "num_key_value_heads", None) or heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kept = own if kv_heads is None else kv_heads
    count = config.num_hidden_layers if layers is None else layers
    minded = tokens * (heads + 1) * 4 + heads * dim * config.hidden_size * item if minds else 0
    return count * (tokens * (heads // own * kept * (item + gradients) + 2 * kept * item) * dim + minded)


def record_to_file(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    path: Path,
    *,
    layers: Sequence[int] | None,
    model_name: str,
    text: str,
    tokens: tuple[str, ...],
    dtype: torch.dtype = torch.float16,
    kv_heads: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Recorded:
    """`record` into a `pattern-studio-capture/1` file; each layer is written when the model has computed it.

    `layers` None takes every layer that a capture can hold. `progress` is told each layer's number.
    The file appears when it is whole; on an error nothing is left.

    Raises:
        StudioError: as `record` does, or the file would be larger than one that is read.
    """
    size = estimated_bytes(
        model.config, len(tokens), None if layers is None else len(layers),
        None if kv_heads is None else len(kv_heads), dtype.itemsize,
    )  # fmt: skip
    if size > MAX_FILE_BYTES:
        raise StudioError(
            f"expected a capture of at most {MAX_FILE_BYTES:,} bytes, got {size:,} for these layers and tokens; "
            "record fewer layers, KV heads or tokens"
        )
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as stream:
            limit = 4096 + _ENTRY * 3 * 1024 + len(json.dumps([model_name, text, json.dumps(tokens)]))
            writer = _Writer(stream, limit)
            recorder = Recorder(
                None if layers is None else frozenset(layers), dtype,
                kv_heads=kv_heads, keep=writer.keep, progress=progress,
            )  # fmt: skip
            run_recorded(model, inputs, recorder)
            scale, causal = recorder.common()
            writer.finish(metadata_of(model_name, text, tokens, scale, causal, dtype_name(dtype)))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return Recorded(tuple(sorted(recorder.numbers)), recorder.skipped, path.stat().st_size)


class _Writer:
    """A safetensors file whose header comes last, into room that was left for it."""

    def __init__(self, stream: BinaryIO, header_bytes: int) -> None:
        self.stream, self.room, self.at = stream, -(-header_bytes // 8) * 8, 0
        self.entries: dict[str, Any] = {}
        stream.seek(8 + self.room)

    def keep(self, number: int, layer: LayerCapture) -> None:
        for name, tensor in layer.named().items():
            data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
            self.stream.write(data)
            entry = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape)}
            self.entries[f"layers.{number}.{name}"] = entry | {"data_offsets": [self.at, self.at + len(data)]}
            self.at += len(data)

    def finish(self, metadata: dict[str, str]) -> None:
        header = json.dumps({"__metadata__": metadata} | self.entries).encode()
        if len(header) > self.room:  # more than a thousand layers, or names of a kind not thought of
            raise StudioError(f"expected a header of at most {self.room} bytes, got {len(header)}; record fewer layers")
        self.stream.seek(0)
        # The format allows spaces after the JSON.
        self.stream.write(self.room.to_bytes(8, "little") + header.ljust(self.room))
