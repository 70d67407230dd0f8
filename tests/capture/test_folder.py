"""Models in folders: what save_pretrained writes is loaded, and nothing in a folder is trusted."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pattern_studio.capture import folder
from pattern_studio.capture.folder import load_folder, model_folder
from pattern_studio.errors import StudioError


@pytest.fixture
def copied(toy_llama: Path, tmp_path: Path) -> Path:
    """The same folder, to be spoilt."""
    path = tmp_path / "model"
    path.mkdir()
    for file in toy_llama.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def test_the_model_is_the_one_that_was_saved(toy_llama):
    loaded = load_folder(str(toy_llama))
    assert loaded.name == "toy-llama (llama)"
    assert loaded.ids("the quick brown fox") == (1, 2, 3, 4)
    assert not loaded.model.training
    again = LlamaForCausalLM.from_pretrained(toy_llama).model
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), again.parameters(), strict=True))


def test_a_link_to_a_folder_is_followed_and_said(toy_llama, tmp_path):
    (tmp_path / "link").symlink_to(toy_llama)
    assert model_folder(str(tmp_path / "link")) == toy_llama


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(StudioError, match="expected a folder, got"):
        model_folder(str(tmp_path / "a"))


@pytest.mark.parametrize("text", ["", "model", "./model", "~/model", "/tmp/../etc", "/a\0b", "/" + "a" * 5000])
def test_what_is_no_absolute_path(text):
    with pytest.raises(StudioError, match=r"expected an absolute path such as /models/mine, got .*; write it whole"):
        model_folder(text)


def test_no_folder(tmp_path):
    (tmp_path / "file").touch()
    for name, why in (("file", "Not a directory"), ("none", "No such file or directory")):
        with pytest.raises(StudioError, match=f"expected a folder, got '{why}' for .*; check the path"):
            model_folder(str(tmp_path / name))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_what_is_needed(copied, name):
    (copied / name).unlink()
    with pytest.raises(StudioError, match=f"got no {name}; save the model and its tokenizer there"):
        model_folder(str(copied))


def test_a_pipe_in_place_of_weights_is_not_read(copied):
    (copied / "model.safetensors").unlink()
    os.mkfifo(copied / "model.safetensors")
    with pytest.raises(StudioError, match=r"got no model\.safetensors"):
        model_folder(str(copied))


def test_weights_that_are_a_pickle_are_never_opened(copied, tmp_path):
    class Evil:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    (copied / "model.safetensors").unlink()
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(StudioError, match=r"got no model\.safetensors"):
        load_folder(str(copied))
    assert not (tmp_path / "ran").exists()


def changed(path: Path, **fields: object) -> str:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))
    return str(path)


def test_code_that_comes_with_a_model_does_not_run(copied, tmp_path):
    (copied / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\n")
    with pytest.raises(StudioError, match="a model that transformers knows, got one with code of its own"):
        load_folder(changed(copied, auto_map={"AutoConfig": "evil.Config"}))
    tokenizer = json.loads((copied / "tokenizer_config.json").read_text())
    copied.joinpath("tokenizer_config.json").write_text(
        json.dumps(tokenizer | {"auto_map": {"AutoTokenizer": ["evil.Config", None]}})
    )
    json_config = json.loads((copied / "config.json").read_text())
    del json_config["auto_map"]
    (copied / "config.json").write_text(json.dumps(json_config))
    assert load_folder(str(copied)).ids("fox") == (4,)  # the tokenizer that transformers knows
    assert not (tmp_path / "ran").exists()


def test_an_adapter_could_name_another_folder(copied):
    (copied / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    with pytest.raises(StudioError, match="expected a whole model, got an adapter"):
        model_folder(str(copied))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"num_hidden_layers": 10**9}, "of at most 1024 layers, got num_hidden_layers 1000000000"),
        ({"num_hidden_layers": "3"}, "got num_hidden_layers '3'"),
        ({"hidden_size": 1 << 20}, r"describes [\d,]+ parameters, the weights have [\d,]+ bytes"),
        ({"model_type": "no such"}, "expected a model and its tokenizer in .*, got ValueError"),
        ({"num_hidden_layers": 4}, r"the weights have nothing for \["),
        ({"num_attention_heads": 0}, "expected a model and its tokenizer in .*, got "),
    ],
)
def test_a_config_that_lies(copied, fields, error):
    with pytest.raises(StudioError, match=error):
        load_folder(changed(copied, **fields))


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, " " * (1 << 21)])
def test_a_config_that_is_none(copied, text):
    (copied / "config.json").write_text(text)
    with pytest.raises(StudioError, match="to be a transformers config of at most 1024 layers"):
        model_folder(str(copied))


def test_weights_cut_short(copied):
    data = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(StudioError, match="expected a model and its tokenizer in"):
        load_folder(str(copied))


def test_weights_that_are_too_large(copied, monkeypatch):
    monkeypatch.setattr(folder, "MAX_WEIGHTS", 1000)
    with pytest.raises(StudioError, match=r"at most 1,000 bytes of weights, got [\d,]+; take a smaller model"):
        model_folder(str(copied))
