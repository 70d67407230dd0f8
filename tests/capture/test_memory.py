"""Recording into a file holds one layer, however many are recorded: measured in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.metrics.test_memory import PEAK

TOKENS, HEADS, DIM, LAYERS = 4096, 8, 64, 16
LAYER_BYTES = 3 * TOKENS * HEADS * DIM * 2  # q, k and v as float16
# Of what is freed glibc keeps some for later, by chance up to 70 MiB in one run and none in the next. So it keeps none:
# the peak is then what is held, the same in every run.
NOTHING_KEPT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}

SCRIPT = (
    PEAK
    + f"""
import sys
import torch
from transformers import LlamaConfig, LlamaModel
from pattern_studio.capture.to_file import record_to_file

torch.set_num_threads(1)
size = dict(hidden_size={HEADS * DIM}, intermediate_size=16, num_attention_heads={HEADS}, num_key_value_heads={HEADS})
model = LlamaModel(LlamaConfig(vocab_size=9, num_hidden_layers={LAYERS}, max_position_embeddings={TOKENS}, **size))
folder, count = Path(sys.argv[1]), int(sys.argv[2])


def to_file(tokens, layers):
    inputs = {{"input_ids": torch.arange(tokens)[None] % 9}}
    words = dict(model_name="toy", text="none", tokens=("x",) * tokens)
    return record_to_file(model.eval(), inputs, folder / "capture.safetensors", layers=range(layers), **words).bytes


to_file(64, 1)  # whatever is loaded on first use
before = peak()
size = to_file({TOKENS}, count)
print(peak() - before, size)
"""
)


def grown(folder: Path, layers: int) -> tuple[int, int]:
    """Bytes by which the peak grew, and of the file."""
    command = [sys.executable, "-c", SCRIPT, str(folder), str(layers)]
    environment = os.environ | NOTHING_KEPT
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment).stdout
    memory, size = map(int, told.split())
    return memory, size


def test_sixteen_layers_take_the_memory_of_one(tmp_path):
    one, size_of_one = grown(tmp_path, 1)
    all_of_them, size = grown(tmp_path, LAYERS)
    assert size - size_of_one > (LAYERS - 1) * LAYER_BYTES - 10_000
    # Fifteen more layers are 180 MiB.
    assert all_of_them - one < LAYER_BYTES, f"{one / 2**20:.0f} MiB for one, {all_of_them / 2**20:.0f} for all"
