"""`pattern-studio capture` on models in folders, and what analyze says of bad captures."""

from __future__ import annotations

import pytest
import torch

from pattern_studio.capture import Capture, container
from pattern_studio.capture.load import load_model
from pattern_studio.cli import main
from pattern_studio.learned import fit_blocks, loss_gradients, measured_minds
from tests.capture.families import save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    save("llama", made)
    (made / "text.txt").write_text("A pattern is one line of text: a predicate on positions, with no lengths in it.")
    return made


def capture(folder, *more: str) -> list[str]:
    return ["capture", "--model", str(folder), "--text", str(folder / "text.txt"), *more]


def test_recorded_and_analyzed(folder, tmp_path, capsys):
    out = tmp_path / "llama.safetensors"
    arguments = capture(folder, "--layers", "0-2/2", "--tokens", "50", "--kv-heads", "1", "--out", str(out))
    assert main([*arguments, "--note", "CC0"]) == 0
    told = capsys.readouterr()
    # 2 layers x 50 tokens x (3 query heads + 2) x 8 channels x 2 bytes.
    assert f"50 tokens, up to {2 * 50 * 5 * 8 * 2 / 1e6:.1f} MB" in told.err
    assert "layer 2: 2 of 2" in told.err
    assert told.out.startswith(f"wrote {out}: layers 0, 2, ")
    made = Capture.load(out)
    assert (list(made.layers), "".join(made.tokens)[:9], made.dtype) == ([0, 2], "A pattern", torch.float16)
    assert "KV heads 1 only; CC0" in made.model
    assert main(["analyze", "causal & window(7, 0)", "--block", "16", "--capture", str(out), "--json"]) == 0


@pytest.mark.parametrize(("family", "layers"), [("llama", "0,2"), ("bert", "all")])
def test_what_the_model_minds_is_in_the_file(family, layers, tmp_path, capsys):
    save(family, tmp_path)
    (tmp_path / "text.txt").write_text(
        "A pattern is one line of text: a predicate on positions, with no lengths in it."
    )
    out = tmp_path / "made.safetensors"
    arguments = capture(tmp_path, "--layers", layers, "--tokens", "50", "--out", str(out))
    assert main([*arguments, "--sensitivity"]) == 0
    told = capsys.readouterr()
    assert "layer 2 alone" in told.err
    assert f"{out.stat().st_size} bytes" in told.out
    made = Capture.load(out)
    assert sum(made.sensitivity) == pytest.approx(1, abs=1e-3)
    assert main(["analyze", "window(7, 0)", "--block", "16", "--capture", str(out)]) == 0
    assert "| layer | head | weighted damage | damage |" in capsys.readouterr().out
    assert main(arguments) == 0
    assert Capture.load(out).sensitivity is None


@pytest.mark.parametrize(
    ("more", "heads", "kind"),
    [
        (("--layers", "0,2"), range(6), torch.bfloat16),
        (("--layers", "0,2", "--sensitivity"), range(6), torch.bfloat16),
        (("--layers", "0,2", "--kv-heads", "1,0", "--dtype", "float32"), (3, 4, 5, 0, 1, 2), torch.float32),
        (("--layers", "0,2", "--kv-heads", "1"), (3, 4, 5), torch.bfloat16),
    ],
)
def test_what_the_loss_minds_is_in_the_file(folder, more, heads, kind, tmp_path, capsys):
    out = tmp_path / "made.safetensors"
    assert main([*capture(folder, "--tokens", "50", "--out", str(out)), *more, "--gradients"]) == 0
    told = capsys.readouterr()
    assert "what the loss minds" in told.err
    assert f"{out.stat().st_size} bytes" in told.out
    # 2 layers x 50 tokens x 8 channels, q, k and v and three draws of gradients as large as q.
    item, kv = kind.itemsize, len(heads) // 3
    assert f"up to {2 * 50 * 8 * (4 * len(heads) + 2 * kv) * item / 1e6:.1f} MB" in told.err
    made = Capture.load(out)
    assert (made.sensitivity is not None) == ("--sensitivity" in more)
    loaded = load_model(str(folder), head=True)
    ids = loaded.ids((folder / "text.txt").read_text(), 50)
    whole = loss_gradients(loaded.model, ids)
    assert list(made.gradients.layers) == [0, 2]
    for number, found in made.gradients.layers.items():
        assert torch.equal(found, whole.layers[number][:, list(heads)].to(kind))
    assert fit_blocks(made, 0.5, (16, 8), gradients=made.gradients).tiles > 0


@pytest.mark.parametrize("more", [(), ("--sensitivity", "--gradients")])
def test_what_reports_rank_by_is_in_the_file(folder, more, tmp_path, capsys):
    out = tmp_path / "made.safetensors"
    arguments = capture(folder, "--layers", "0,2", "--tokens", "50", "--out", str(out))
    assert main([*arguments, "--minds", *more]) == 0
    told = capsys.readouterr()
    assert "which rows the loss minds" in told.err
    assert "layer 2 alone" in told.err
    # As with gradients above, and for each layer 4 bytes for a head's row and a row's stream, and 48 x 48 weights.
    size = 2 * (50 * 8 * (6 + 4 + 18 * bool(more)) * 2 + 50 * 7 * 4 + 48 * 48 * 2)
    assert f"up to {size / 1e6:.1f} MB" in told.err
    assert 0 < out.stat().st_size - size < 20_000  # the header
    made = Capture.load(out)
    loaded = load_model(str(folder), head=True)
    ids = loaded.ids((folder / "text.txt").read_text(), 50)
    wanted = measured_minds(loaded.model, ids, made)
    for number in (0, 2):
        for name, tensor in wanted.layers[number].named().items():
            assert torch.equal(made.minds.layers[number].named()[name], tensor)
    assert (made.gradients is not None) == bool(more)
    assert main(["analyze", "window(7, 0)", "--block", "16", "--capture", str(out)]) == 0
    assert "| layer | head | minded damage | weighted damage | damage |" in capsys.readouterr().out
    assert main(arguments) == 0
    assert Capture.load(out).minds is None


def test_gradients_that_no_file_can_hold_are_not_measured(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(container, "MAX_FILE_BYTES", 60_000)  # q, k and v take 24,000 bytes, the gradients 43,200
    assert main(capture(folder, "--tokens", "50", "--gradients", "--out", str(tmp_path / "x.safetensors"))) == 2
    assert "at most 60,000 bytes, got 67,200 with gradients; record fewer" in capsys.readouterr().err
    assert (
        main(capture(folder, "--tokens", "50", "--minds", "--gradients", "--out", str(tmp_path / "x.safetensors"))) == 2
    )
    assert "with gradients and minds; record fewer" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["--gradients", "--minds"])
def test_an_encoder_has_no_loss_to_mind(what, tmp_path, capsys):
    save("bert", tmp_path)
    (tmp_path / "text.txt").write_text("A pattern is one line of text.")
    out = tmp_path / "made.safetensors"
    assert main([*capture(tmp_path, "--out", str(out)), what]) == 2
    assert f"{what} takes a model that predicts the next token, got" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("expected 1 to 79 tokens, as the text has 79 and", ("--tokens", "80")),
        ("--layers takes all, or numbers and ranges such as 0,7-9 or 0-29/5, got 'first'", ("--layers", "first")),
        ("--layers takes at least one number, each once, got '1,1'", ("--layers", "1,1")),
        ("--sensitivity measures whole layers, got --kv-heads with it", ("--sensitivity", "--kv-heads", "0")),
        ("--minds measures whole layers, got --kv-heads with it", ("--minds", "--kv-heads", "0")),
        ("changes the output of every layer, got one of 3 tokens", ("--sensitivity", "--tokens", "3")),
        ("changes the output of every layer, got one of 3 tokens", ("--minds", "--tokens", "3")),
        ("expected at least 2 tokens, as the first has no loss, got 1", ("--gradients", "--tokens", "1")),
        ("expected to meet layers [9], got no attention from [9]", ("--layers", "9")),
    ],
)
def test_errors_are_one_line(folder, tmp_path, message, more, capsys):
    assert main(capture(folder, "--out", str(tmp_path / "x.safetensors"), *more)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pattern-studio: ")
    assert message in last
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there(folder, tmp_path, capsys):
    arguments = capture(folder, "--out", str(tmp_path / "x.safetensors"))
    arguments[2] = str(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert "expected a model's name on the hub, its folder, 'smollm2', 'minilm' or 'qwen', but" in told


def test_what_is_no_text_or_no_capture_file(folder, tmp_path, capsys):
    assert main(capture(folder, "--out", "x.bin")) == 2
    assert "--out takes a file ending in .safetensors, got 'x.bin'" in capsys.readouterr().err
    (tmp_path / "latin").write_bytes(b"\xe9t\xe9")
    assert main(["capture", "--model", "m", "--text", str(tmp_path / "latin"), "--out", "x.safetensors"]) == 2
    assert "expected UTF-8 text" in capsys.readouterr().err


def test_a_truncated_capture_is_one_line(folder, tmp_path, capsys):
    out = tmp_path / "cut.safetensors"
    assert main(capture(folder, "--layers", "0", "--out", str(out))) == 0
    out.write_bytes(out.read_bytes()[:-1])
    capsys.readouterr()
    assert main(["analyze", "causal", "--capture", str(out)]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "it is truncated; get it again" in told
