"""`analyze --loss` on a model in a folder."""

from __future__ import annotations

import json

from pattern_studio.cli import main
from tests.capture.families import save

FAST = ("--layers", "7", "--block", "256")


def test_the_loss_is_beside_the_report(tmp_path, capsys):
    folder, text = save("llama", tmp_path / "model"), tmp_path / "text.txt"
    text.write_text("A pattern is one line of text: a predicate on positions.")
    arguments = ["analyze", "causal & window(3, 0)", *FAST, "--loss", str(folder), "--text", str(text)]
    assert main([*arguments, "--tokens", "50", "--sensitivity", "--json"]) == 0
    told = capsys.readouterr()
    loss = json.loads(told.out)["loss"]
    assert (loss["tokens"], loss["scored"], [one["layer"] for one in loss["layers"]]) == (50, 25, [0, 1, 2])
    ran = [line for line in told.err.splitlines() if line.startswith("running ")]
    assert ran == [f"running {name}" for name in ("dense", "sparse", "layer 0", "layer 1", "layer 2")]
    assert main([*arguments, "--tokens", "40", "--probe"]) == 0
    told = capsys.readouterr().out
    assert "Next-token loss over the last 20 of 40 tokens, nats:" in told
    assert "Copying 16 random tokens at the end of 40 (2 draws):" in told


def test_a_model_needs_a_text(capsys):
    assert main(["analyze", "causal", "--loss", "smollm2"]) == 2
    assert "--loss runs a model on a text; say which with --text FILE" in capsys.readouterr().err
