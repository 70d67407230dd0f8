"""For all tests. Without a GPU the fused kernels run in Triton's interpreter: the same source on small shapes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # two test processes share the cores; more threads would only wait for each other

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported


@pytest.fixture(autouse=True, scope="module")
def _main_is_left_as_it_was():
    """Streamlit's AppTest leaves its script as `__main__`, which every process spawned later would run."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(scope="session")
def toy_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `toy-llama` with a small model and its tokenizer (capture/toy_model.py); not to be changed."""
    from tests.capture.toy_model import save_llama  # transformers takes seconds to import

    path = tmp_path_factory.mktemp("models") / "toy-llama"
    save_llama(path)
    return path
