"""Checkpoints that lack weights: transformers draws what is missing at random, which nobody wants to measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, LlamaModel, PreTrainedModel

from pattern_studio import StudioError
from pattern_studio.capture.folder import load_folder
from pattern_studio.capture.load import load_model
from tests.capture.families import SIZES, tokenizer


def saved(model: PreTrainedModel, folder: Path) -> str:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def test_a_model_without_its_output_layer_predicts_nothing(tmp_path):
    name = saved(LlamaModel(LlamaConfig(**SIZES, num_key_value_heads=2)), tmp_path)
    assert load_model(name).model.config.num_hidden_layers == 3
    with pytest.raises(StudioError, match=r"CausalLM, got none in .* for \['lm_head.weight'\], which would"):
        load_model(name, head=True)


def test_an_output_layer_that_is_the_embedding_is_there(tmp_path):
    config = LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=True)
    model = LlamaForCausalLM(config)
    loaded = load_model(saved(model, tmp_path), head=True).model
    assert (loaded.lm_head.weight == model.model.embed_tokens.weight).all()


@pytest.mark.parametrize("load", [load_model, load_folder])
def test_a_missing_layer_is_told(load, tmp_path):
    name = saved(LlamaModel(LlamaConfig(**SIZES, num_key_value_heads=2)), tmp_path)
    config = LlamaConfig(**SIZES, num_key_value_heads=2)
    config.num_hidden_layers = 4
    config.save_pretrained(name)
    with pytest.raises(StudioError, match=r"layers\.3\."):
        load(name)


@pytest.mark.parametrize("load", [load_model, load_folder])
def test_a_masked_language_model_needs_no_pooler(load, tmp_path):
    model = BertForMaskedLM(BertConfig(**SIZES))
    loaded = load(saved(model, tmp_path)).model
    assert (loaded.embeddings.word_embeddings.weight == model.bert.embeddings.word_embeddings.weight).all()
