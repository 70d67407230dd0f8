"""What is recorded from each family gives the attention probabilities that the model itself states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pattern_studio.capture import Capture
from pattern_studio.capture.to_file import record_to_file
from pattern_studio.errors import StudioError
from tests.capture.families import FAMILIES, build

TOKENS = 40
INPUTS = {"input_ids": torch.randint(3, 256, (1, TOKENS), generator=torch.Generator().manual_seed(1))}
FIXED = {"model_name": "toy", "text": "random", "tokens": ("x",) * TOKENS, "dtype": torch.float32}


def probabilities(capture: Capture, number: int) -> torch.Tensor:
    """[heads, tokens, tokens] from q and k alone."""
    layer = capture.layers[number]
    k = layer.k.double().repeat_interleave(layer.heads // layer.kv_heads, dim=0)
    scores = layer.q.double() @ k.mT * capture.scale
    if capture.causal:
        scores = scores.masked_fill(torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_q_and_k_give_the_models_own_probabilities(family, tmp_path):
    _, _, causal, kv_heads, holds = FAMILIES[family]
    seen: list[int] = []
    path = tmp_path / "capture.safetensors"
    recorded = record_to_file(build(family), INPUTS, path, layers=None, progress=seen.append, **FIXED)
    assert (seen, recorded.layers, sorted(recorded.skipped)) == (holds, tuple(holds), sorted({0, 1, 2} - set(holds)))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    capture = Capture.load(path)
    assert (capture.causal, capture.scale) == (causal, 8**-0.5)
    with torch.no_grad():
        own = build(family, "eager").base_model(**INPUTS, output_attentions=True).attentions
    for number in holds:
        assert capture.layers[number].kv_heads == kv_heads
        torch.testing.assert_close(probabilities(capture, number), own[number][0].double(), rtol=1e-4, atol=1e-6)


def test_a_window_of_modernbert_is_named_where_it_is_refused_and_where_it_is_left_out(tmp_path):
    # local_attention=16 is 8 to either side; layer 0 sees everything.
    path = tmp_path / "capture.safetensors"
    said = r"got another one in layer 1 \(a sliding window, window\(8, 8\)\); a capture can't hold it, choose another"
    with pytest.raises(StudioError, match=said):
        record_to_file(build("modernbert"), INPUTS, path, layers=[0, 1], **FIXED)
    assert not list(tmp_path.iterdir())
    recorded = record_to_file(build("modernbert"), INPUTS, path, layers=None, **FIXED)
    why = "its dense mask is window(8, 8), neither causal nor full"
    assert recorded.skipped == {1: why, 2: why}
    with torch.no_grad():  # the window is the model's: what it gives no weight is what the name leaves out
        own = build("modernbert", "eager").base_model(**INPUTS, output_attentions=True).attentions[1][0]
    where = torch.arange(TOKENS)
    assert torch.equal(own > 0, ((where - where[:, None]).abs() <= 8).expand_as(own))


def test_kv_heads_bring_their_query_heads(tmp_path):
    whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    record_to_file(build("llama"), INPUTS, whole, layers=[1], **FIXED)
    record_to_file(build("llama"), INPUTS, part, layers=[1], kv_heads=[1], **FIXED)
    full, one = (Capture.load(path).layers[1] for path in (whole, part))
    assert (one.heads, one.kv_heads) == (3, 1)
    assert torch.equal(one.q, full.q[3:])
    assert torch.equal(one.v, full.v[1:])
    with pytest.raises(StudioError, match=r"expected distinct KV heads from 0 to 1, got \[2\]; choose from these"):
        record_to_file(build("llama"), INPUTS, part, layers=[1], kv_heads=[2], **FIXED)


def test_a_file_equals_what_is_kept_in_memory(tmp_path):
    from pattern_studio.capture.record import record

    path = tmp_path / "capture.safetensors"
    recorded = record_to_file(build("gpt2"), INPUTS, path, layers=[2, 0], **FIXED)
    kept, read = record(build("gpt2"), INPUTS, layers=[2, 0], **FIXED), Capture.load(path)
    assert recorded.bytes == path.stat().st_size
    assert (read.model, read.text, read.tokens, read.scale) == (kept.model, kept.text, kept.tokens, kept.scale)
    for number, layer in kept.layers.items():
        assert all(torch.equal(read.layers[number].named()[name], tensor) for name, tensor in layer.named().items())


def test_an_error_leaves_no_file(tmp_path):
    with pytest.raises(StudioError, match=r"got no attention from \[3\]"):
        record_to_file(build("gpt2"), INPUTS, tmp_path / "x.safetensors", layers=[3], **FIXED)
    assert not list(tmp_path.iterdir())


def test_a_capture_that_could_not_be_read_back_is_refused(tmp_path):
    long = FIXED | {"tokens": ("x",) * 10**6}
    model = build("gpt2")
    model.config.n_layer = 30
    with pytest.raises(StudioError, match=r"at most 4,294,967,296 bytes, got 17,280,000,000 .* record fewer layers"):
        record_to_file(model, INPUTS, Path(tmp_path / "x.safetensors"), layers=None, **long)
