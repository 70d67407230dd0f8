"""Recording from a model in a folder: what is kept, what it says meanwhile, how it is stopped, and the form for it."""

from __future__ import annotations

import pytest
import torch
from pattern_studio_app import recording
from pattern_studio_app.record_spec import RecordSpec
from pattern_studio_app.recording import layer_numbers, record, why_not
from pattern_studio_app.tasks import Stopped, Task, tasks
from streamlit import config

from pattern_studio import StudioError
from pattern_studio.capture.folder import load_folder
from pattern_studio.learned import loss_gradients, measured_minds
from pattern_studio.metrics.sensitivity import layer_sensitivity

from ..capture.families import save
from .test_pages import html, labelled
from .test_uploads import started, turned

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def loopback():
    before = config.get_option("server.address")
    config.set_option("server.address", "127.0.0.1")
    yield
    config.set_option("server.address", before)


def test_a_model_in_a_folder(toy_llama, loopback):
    text = "the quick brown fox jumps over a lazy dog " * 3
    source = record(RecordSpec(str(toy_llama), "2, 0", 20, text), Task(1))
    assert source.title == "toy-llama (llama); licence not stated, 20 tokens, layers 0 and 2"
    capture = source.load()
    assert capture.tokens[:3] == ("the", "quick", "brown")
    assert (capture.layers[2].heads, capture.layers[2].kv_heads, capture.causal) == (4, 2, True)


def test_it_says_what_it_does(toy_llama, loopback):
    said = []

    class Told(Task):
        def say(self, words, done, of=None):
            super().say(words, done, of)
            said.append((words, self.done, self.of))

    record(RecordSpec(str(toy_llama), "0, 1", 5, "the fox"), Told(1))
    assert said[1:] == [
        ("toy-llama (llama) reads 2 tokens", 1, 3),
        ("Recorded layer 0", 2, 3),
        ("Recorded layer 1", 3, 3),
    ]


def test_it_can_be_stopped(toy_llama, loopback):
    class Soon(Task):
        def say(self, words, done, of=None):
            super().say(words, done, of)
            if words.startswith("Recorded"):
                self.stop()

    with pytest.raises(Stopped):
        record(RecordSpec(str(toy_llama), "0, 1, 2", 5, "the fox"), Soon(1))


def test_what_the_loss_minds(toy_llama, loopback):
    task, text = Task(1), "the quick brown fox jumps over a lazy dog " * 3
    source = record(RecordSpec(str(toy_llama), "2, 0", 20, text, gradients=True), task)
    assert source.gradients
    assert (task.words, task.done, task.of) == ("What the loss minds of them", 3, 4)
    found, loaded = source.load().gradients, load_folder(str(toy_llama), head=True)
    wanted = loss_gradients(loaded.model, loaded.ids(text, 20))
    assert list(found.layers) == [0, 2]
    for number, tensor in found.layers.items():
        assert torch.equal(tensor, wanted.layers[number].bfloat16())


@pytest.mark.parametrize("gradients", [False, True])
def test_what_damage_is_weighed_by(gradients, toy_llama, loopback):
    task, text = Task(1), "the quick brown fox jumps over a lazy dog " * 9
    source = record(RecordSpec(str(toy_llama), "2, 0", 70, text, gradients=gradients, minds=True), task)
    assert (task.done, task.of) == (3 + gradients, 4 + gradients)
    capture, loaded = source.load(), load_folder(str(toy_llama), head=True)
    assert source.gradients == gradients
    ids = loaded.ids(text, 70)
    assert capture.sensitivity == layer_sensitivity(loaded.model, ids, capture)
    wanted = measured_minds(loaded.model, ids, capture)
    for number, found in capture.minds.layers.items():
        assert all(torch.equal(part, wanted.layers[number].named()[name]) for name, part in found.named().items())


@pytest.mark.parametrize("asked", ["gradients", "minds"])
def test_an_encoder_has_no_loss_to_mind(asked, tmp_path, loopback):
    save("bert", tmp_path)
    with pytest.raises(StudioError, match=r"expected a model that predicts the next token .* got an encoder"):
        record(RecordSpec(str(tmp_path), "0", 9, "the fox ran", **{asked: True}), Task(1))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (RecordSpec("models/mine"), "expected an absolute path such as /models/mine, got 'models/mine'"),
        (RecordSpec("/etc"), "got no config.json; save the model and its tokenizer there"),
        (RecordSpec("/etc", "0-3"), "expected layers such as 0, 7, 20, got '0-3'"),
        (RecordSpec("/etc", tokens=9999), "expected 1 to 8,192 tokens"),
        (RecordSpec("/etc", text="a" * 1_000_001), "got 512 tokens of 1,000,001 characters; take fewer"),
    ],
)
def test_what_can_not_be_recorded(spec, error, loopback):
    with pytest.raises(StudioError, match=error):
        record(spec, Task(1))


def test_layers_that_the_model_does_not_have(toy_llama, loopback):
    with pytest.raises(StudioError, match=r"choose among those met: \[0, 1, 2\]"):
        record(RecordSpec(str(toy_llama), "0, 9", 5, "the fox"), Task(1))


def test_too_much_to_be_kept(toy_llama, loopback, monkeypatch):
    monkeypatch.setattr(recording, "MAX_BYTES", 1000)
    with pytest.raises(StudioError, match="expected a capture of at most 1,000 bytes, got 1,280; take fewer layers"):
        record(RecordSpec(str(toy_llama), "0", 10, "the fox"), Task(1))


@pytest.mark.parametrize("text", ["", "a", "1,", "1, 1", "-1", "99999", "1.5"])
def test_layers_are_distinct_numbers(text):
    with pytest.raises(StudioError, match="write distinct whole numbers"):
        layer_numbers(text)


def test_only_a_server_for_this_machine_records(toy_llama):
    assert "start it with pattern-studio app" in why_not()
    with pytest.raises(StudioError, match="the server has to be bound to that machine alone"):
        record(RecordSpec(str(toy_llama)), Task(1))


def test_without_transformers_one_sentence_says_what_to_install(loopback, monkeypatch):
    monkeypatch.setattr(recording.importlib.util, "find_spec", lambda name: None)
    assert why_not().startswith("Recording needs transformers: pip install 'pattern-studio[models]'")


@pytest.mark.parametrize("minds", [False, True])
def test_the_form_records_and_the_capture_is_chosen(minds, toy_llama, loopback):
    at = started("quality")
    labelled(at.text_input, "Folder").set_value(str(toy_llama)).run()
    labelled(at.text_input, "Layers").set_value("1").run()
    labelled(at.text_area, "Text").set_value("the quick brown fox " * 10).run()
    if minds:
        labelled(at.checkbox, "Also what the loss minds").check().run()
    at.button(key="record").click().run()
    at.run()
    assert not at.exception
    assert "toy-llama (llama); licence not stated, 40 tokens, layer 1" in html(at)
    assert "Layer 1, head 0" in html(at)
    turned(at, "fit")
    assert labelled(at.selectbox, "Chosen by").disabled != minds


def test_a_recording_that_fails_says_why(loopback):
    at = started("quality")
    labelled(at.text_input, "Folder").set_value("/etc").run()
    at.button(key="record").click().run()
    tasks().of(at.session_state["studio session"].visitor, "record").future.exception(60)
    at.run()
    assert not at.exception
    assert "got no config.json; save the model and its tokenizer there" in html(at)


def test_a_server_for_others_offers_no_recording():
    at = started("quality")
    assert "Recording reads folders of the machine that serves this page" in html(at)
    assert not [field for field in at.text_input if field.label == "Folder"]
