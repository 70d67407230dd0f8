"""Models in folders of this machine, loaded without trusting them: nothing is fetched, unpickled or run."""

from __future__ import annotations

import json
from pathlib import Path
from reprlib import repr as short
from typing import Any

import torch

from pattern_studio.capture.container import reason
from pattern_studio.capture.load import Loaded, random_parts
from pattern_studio.errors import StudioError

MAX_WEIGHTS = 4 << 30  # bytes of weights; in float32 they take up to twice as much memory
MAX_CONFIG = 1 << 20
MAX_LAYERS = 1024


def model_folder(text: str) -> Path:
    """The folder that a text names, links resolved, if it can hold a model as transformers saves it.

    Raises:
        StudioError: no absolute path of a folder with config.json, tokenizer.json and safetensors weights of a sane
            size, an adapter that names another model, or a model that comes with code of its own.

    >>> model_folder("models/mine")
    Traceback (most recent call last):
    ...
    pattern_studio.errors.StudioError: expected an absolute path such as /models/mine, got 'models/mine'; write it whole
    """
    path = Path(text.strip())
    if not path.is_absolute() or ".." in path.parts or "\0" in text or len(text) > 4096:
        raise StudioError(f"expected an absolute path such as /models/mine, got {short(text)}; write it whole")
    try:
        folder = path.resolve(strict=True)
        names = {entry.name for entry in folder.iterdir()}
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise StudioError(f"expected a folder, got {reason(error)!r} for {short(text)}; check the path") from None
    if "adapter_config.json" in names:
        raise StudioError(f"expected a whole model, got an adapter in {folder}; merge it into its model and save that")
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    for name in ("config.json", "tokenizer.json", *(weights[:1] or ["model.safetensors"])):
        if not (folder / name).is_file():
            raise StudioError(
                f"expected config.json, tokenizer.json and .safetensors weights in {folder}, got no {name}; save the "
                "model and its tokenizer there with save_pretrained"
            )
    size = sum((folder / name).stat().st_size for name in weights)
    if size > MAX_WEIGHTS:
        raise StudioError(f"expected at most {MAX_WEIGHTS:,} bytes of weights, got {size:,}; take a smaller model")
    config = _config(folder / "config.json")
    if "auto_map" in config:
        raise StudioError(f"expected a model that transformers knows, got one with code of its own in {folder}")
    return folder


def load_folder(text: str, *, head: bool = False) -> Loaded:
    """The model in a folder and its tokenizer: float32, on the CPU, in eval mode.

    `head` asks for the model with the part that predicts the next token.

    Raises:
        StudioError: as `model_folder` does, transformers is not installed, or the weights are not the config's.
    """
    try:
        import transformers
    except ImportError as error:
        raise StudioError(
            f"expected transformers to load a model, but it can't be imported ({error}); "
            'install the extra: pip install "pattern-studio[models]"'
        ) from error
    folder = model_folder(text)
    kind: Any = transformers.AutoModelForCausalLM if head else transformers.AutoModel
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **local)
        with torch.device("meta"):  # shapes only, nothing is allocated
            described = sum(part.numel() for part in kind.from_config(config).parameters())
        if described > 2 * size:  # at least half a byte each
            raise StudioError(f"config.json describes {described:,} parameters, the weights have {size:,} bytes")
        model, found = kind.from_pretrained(
            folder, config=config, dtype="float32", use_safetensors=True, output_loading_info=True, **local
        )
        if missing := random_parts(found):
            raise StudioError(f"the weights have nothing for {short(missing)}")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    except Exception as error:  # an untrusted config can make transformers stumble anywhere
        what = " ".join(str(error).split())[:200]
        raise StudioError(
            f"expected a model and its tokenizer in {folder}, got {type(error).__name__}: {what}; save both there "
            "with save_pretrained"
        ) from error
    return Loaded(model.eval(), tokenizer, f"{folder.name} ({model.config.model_type})")


def _config(file: Path) -> dict[str, Any]:
    """config.json, with the number of layers checked."""
    try:
        if (size := file.stat().st_size) > MAX_CONFIG:
            raise ValueError(f"{size:,} bytes")
        config = json.loads(file.read_bytes())
        layers = config.get("num_hidden_layers", 1)
        if type(layers) is not int or not 1 <= layers <= MAX_LAYERS:
            raise ValueError(f"num_hidden_layers {short(layers)}")
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise StudioError(
            f"expected {file} to be a transformers config of at most {MAX_LAYERS} layers, got {str(error)[:100]}; "
            "save it with save_pretrained"
        ) from None
    return config
